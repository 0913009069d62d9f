"""The crash tests of the log, on the simulated disk, which forgets more than the tests' own file system does."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.chaos.runtimes.sim.disk import SimDisk
from tests.property.log import test_crashes
from tests.support.disks.memory_fs import Crashed
from tests.support.effort import examples

READS = ("pread", "list")


class CrashingDisk:
    """Adapts a simulated disk to the interface of `MemoryFs` for crashes."""

    def __init__(self, disk: SimDisk | None = None, lost: dict[str, list[int]] | None = None) -> None:
        self.disk, self.lost = disk or SimDisk(Random(1)), lost
        self.crash_at: int | None = None
        self.calls = 0
        self._fs = self.disk.mount(self._gate)

    def _gate(self, op: str, path: str) -> None:
        if op not in READS and not (op == "open" and self.disk.names.find(path)):
            self.calls += self.crash_at is None or self.calls < self.crash_at
            if self.crash_at is not None and self.calls >= self.crash_at:
                raise Crashed

    def after_crash(self, rng: Random | None = None) -> CrashingDisk:
        """Do what `MemoryFs.after_crash` does. The result uses the same disk; only this object ends."""
        after = SimDisk(rng or Random(1))
        after.names = self.disk.names
        self.disk.kill()
        return CrashingDisk(after, after.power_loss()["logs"] if rng is not None else None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(100), deadline=None)
def test_recovery_yields_what_was_promised_on_the_stricter_disk_too(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_crashes, "MemoryFs", CrashingDisk)
        test_crashes.run(seed, rounds=4)
