"""The crash tests of the log, on real files: the OS process dies, or power is lost, at a random system call."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.broker import real_files
from squall.broker.env import File
from squall.broker.faulted import files, journal, names
from squall.broker.faulted.files import FaultedFs
from squall.chaos.runtimes.real.node_faults import NodeFaults
from tests.property.log import test_crashes
from tests.support.disks.memory_fs import Crashed
from tests.support.effort import examples

MEMORY = "/dev/shm"
"""A folder in memory: these tests sync often, and a disk would make them slow."""
CHANGING = {"pwrite", "write", "ftruncate", "mkdir", "rename", "replace", "link", "unlink"}


class Dying:
    """Replaces `os` for a process that is killed at its n-th changing call, also between two calls of one operation."""

    def __init__(self) -> None:
        self.calls = 0
        self.crash_at: int | None = None

    def __getattr__(self, name: str) -> Any:
        return self._counted(getattr(os, name)) if name in CHANGING else getattr(os, name)

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if self.crash_at is not None and self.calls >= self.crash_at:
                raise Crashed
            self.calls += 1
            return function(*args, **kwargs)

        return called


class RealDisk:
    """Adapts a folder of real files to the interface of `MemoryFs` for crashes."""

    def __init__(
        self, top: Path, system: Dying, disks: list[RealDisk], lost: dict[str, list[int]] | None = None
    ) -> None:
        self._top, self._system, self._disks, self.lost = top, system, disks, lost
        (top / "data").mkdir(parents=True, exist_ok=True)
        self._fs = FaultedFs(str(top / "faults"), [str(top / "data")], 1)
        self._handles: list[Any] = []

    @property
    def calls(self) -> int:
        return self._system.calls

    @property
    def crash_at(self) -> int | None:
        return self._system.crash_at

    @crash_at.setter
    def crash_at(self, call: int | None) -> None:
        self._system.crash_at = call if call is None or call > self.calls else self.calls + call

    def after_crash(self, rng: Random | None = None) -> RealDisk:
        self._system.crash_at = None
        self.die()
        lost = None
        if rng is not None:
            lost = NodeFaults(self._top / "faults").lose_power([self._top / "data"], rng)["logs"]
        self._disks.append(RealDisk(self._top, self._system, self._disks, lost))
        return self._disks[-1]

    def die(self) -> None:
        """End the process without closing its files in order."""
        for inode in self._fs._inodes.values():
            inode.journal.close()
        for handle in self._handles:
            if handle._fd >= 0:
                os.close(handle._fd)
                handle._fd = -1

    def open(self, path: str, **how: bool) -> File:
        file = self._fs.open(self._at(path), **how)
        self._handles.append(file)
        return file

    def rename(self, old: str, new: str) -> None:
        self._fs.rename(self._at(old), self._at(new))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._fs, name)
        return lambda path: method(self._at(path))

    def _at(self, path: str) -> str:
        return str(self._top / path) if path else str(self._top)


def run(seed: int, top: Path) -> None:
    system = Dying()
    disks: list[RealDisk] = []

    def disk() -> RealDisk:
        disks.append(RealDisk(top, system, disks))
        return disks[-1]

    with pytest.MonkeyPatch.context() as patch:
        for module in (files, journal, names, real_files):
            patch.setattr(module, "os", system)
        patch.setattr(test_crashes, "MemoryFs", disk)
        test_crashes.run(seed, rounds=4)
        for each in disks:
            each.die()


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(60), deadline=None)
def test_recovery_yields_what_was_promised_on_real_files_too(seed: int) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as top:
        run(seed, Path(top))
