"""Keeps the files that a run writes: in a run directory, or, in a simulation, only in memory.

`RunStore` is the port. A simulation touches no real file: when it is over, its files are taken out of memory as bytes,
under the names that a run directory has (`docs/run-directory.md`), and may be exported to a real one then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

from squall.broker.env import Fs
from squall.broker.overriding import override
from squall.chaos.runs.directory import RunDirectory

PLAN, INFO, HISTORY, NEMESIS = "plan.toml", "run.json", "history.jsonl", "nemesis.jsonl"


class RunStore(Protocol):
    """Takes one run's plan, run.json, nemesis.jsonl and history."""

    run_id: str
    history: str
    """Path of history.jsonl for the run's `Env.fs`."""
    nemesis_crc: int
    """CRC-32 of nemesis.jsonl as it is now."""

    def plan(self, text: str) -> None:
        """plan.toml, at the beginning, and anew where the machine asks for longer faults."""

    def info(self, info: dict[str, Any]) -> None:
        """run.json, anew at each phase."""

    def fault(self, line: dict[str, Any]) -> None:
        """Append one line to nemesis.jsonl."""

    def polled(self, line: dict[str, Any]) -> None:
        """Append one line to polled.jsonl: only of clusters that somebody else runs."""

    def close(self) -> None:
        """Nothing more is written but run.json. Idempotent."""


class DirectoryRunStore(RunStore):
    """RunStore in a run directory, written as they come: a killed harness loses at most a line."""

    def __init__(self, directory: RunDirectory) -> None:
        self.run_id, self.history = directory.run_id, str(directory.history)
        self._directory = directory
        self._nemesis = directory.nemesis.open("a", encoding="utf-8")
        self.nemesis_crc = 0

    @override
    def plan(self, text: str) -> None:
        self._directory.plan.write_text(text)

    @override
    def info(self, info: dict[str, Any]) -> None:
        self._directory.write_info(info)

    @override
    def fault(self, line: dict[str, Any]) -> None:
        text = fault_line(line)
        self._nemesis.write(text)
        self._nemesis.flush()
        self.nemesis_crc = crc32(text.encode(), self.nemesis_crc)

    @override
    def polled(self, line: dict[str, Any]) -> None:
        with self._directory.polled.open("a", encoding="utf-8") as file:
            file.write(fault_line(line))

    @override
    def close(self) -> None:
        self._nemesis.close()


class MemoryRunStore(RunStore):
    """RunStore in memory. `files` is what would be in the run directory, once the history was taken in."""

    history = "/history.jsonl"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.faults: list[str] = []
        self.nemesis_crc = 0
        self._plan = ""
        self._info: dict[str, Any] = {}
        self.history_bytes = b""

    @override
    def plan(self, text: str) -> None:
        self._plan = text

    @override
    def info(self, info: dict[str, Any]) -> None:
        """Keep run.json's content. It is encoded only when the files are asked for."""
        self._info = info

    @override
    def fault(self, line: dict[str, Any]) -> None:
        self.faults.append(fault_line(line))
        self.nemesis_crc = crc32(self.faults[-1].encode(), self.nemesis_crc)

    @override
    def polled(self, line: dict[str, Any]) -> None:
        """Do nothing: a simulated cluster is always Squall's own, so it is not polled."""

    @override
    def close(self) -> None:
        pass

    def take_history(self, fs: Fs) -> None:
        """Take in what the recorder wrote; none where the run did not come so far."""
        if fs.exists(self.history):
            file = fs.open(self.history)
            self.history_bytes = file.pread(file.size(), 0)
            file.close()

    def files(self) -> dict[str, bytes]:
        """Path in the run directory -> content."""
        written = {
            PLAN: self._plan.encode(),
            INFO: (json.dumps(self._info, indent=1) + "\n").encode(),
            NEMESIS: "".join(self.faults).encode(),
        }
        return {**written, HISTORY: self.history_bytes} if self.history_bytes else written


def fault_line(line: Mapping[str, Any]) -> str:
    """Return a line as it is written to nemesis.jsonl and polled.jsonl."""
    return json.dumps(line, separators=(",", ":")) + "\n"


def export(files: Mapping[str, bytes], directory: RunDirectory) -> None:
    """Write a simulation's files into a run directory."""
    for name, content in files.items():
        path = directory.path / Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
