"""Stores the files that a run writes: in a run directory, or, in a simulation, only in memory.

`RunStore` is the port. A simulation touches no real file: when it is over, its files are taken out of memory as bytes,
under the names that a run directory has (`docs/run-directory.md`), and may then be exported to a real directory.
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
    """Stores one run's plan, run.json, nemesis.jsonl and history."""

    run_id: str
    history: str
    """Is the path of history.jsonl in the harness's file system (`Env.fs`)."""
    nemesis_crc: int
    """Is the CRC-32 of nemesis.jsonl in its current state."""

    def plan(self, text: str) -> None:
        """Write plan.toml: at the beginning, and again if `adapt_to_machine` has made the faults longer."""

    def info(self, info: dict[str, Any]) -> None:
        """Write run.json again, at each phase."""

    def fault(self, line: dict[str, Any]) -> None:
        """Append one line to nemesis.jsonl, the log of the faults."""

    def polled(self, line: dict[str, Any]) -> None:
        """Append one line to polled.jsonl: what the brokers of an external cluster reported when they were polled."""

    def close(self) -> None:
        """Close all files but run.json, which is written again after this. Idempotent."""


class DirectoryRunStore(RunStore):
    """Stores a run's files in a run directory, each line as it comes: a killed harness loses at most a line."""

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
    """Stores a run's files in memory. `files` is the content of a run directory, once `take_history` was called."""

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
        """Keep run.json's content. The content is encoded only when `files` is called."""
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
        """Copy the history that the recorder wrote to `fs`. Does nothing if the run ended before the recorder made the
        file.
        """
        if fs.exists(self.history):
            file = fs.open(self.history)
            self.history_bytes = file.pread(file.size(), 0)
            file.close()

    def files(self) -> dict[str, bytes]:
        """Return the contents of the files, by their paths in the run directory."""
        written = {
            PLAN: self._plan.encode(),
            INFO: (json.dumps(self._info, indent=1) + "\n").encode(),
            NEMESIS: "".join(self.faults).encode(),
        }
        return {**written, HISTORY: self.history_bytes} if self.history_bytes else written


def fault_line(line: Mapping[str, Any]) -> str:
    """Return a line for nemesis.jsonl or polled.jsonl: `line` as compact JSON, and a line feed."""
    return json.dumps(line, separators=(",", ":")) + "\n"


def export(files: Mapping[str, bytes], directory: RunDirectory) -> None:
    """Write a simulation's files into a run directory."""
    for name, content in files.items():
        path = directory.path / Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
