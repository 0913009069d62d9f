"""Runs lanes side by side: each is a pytest process with a log of its own. One line shows the progress of all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from squall.chaos.runtimes.real.processes.child import TETHER
from tests.support.gate.lanes import Lane
from tests.support.gate.results import Result

EXPLAINED = (0, 1, 5)
"""Exit codes of pytest that need no report of their own: tests passed, tests failed, no test was selected."""
EACH_S = 15.0
"""The interval at which progress is shown."""
SILENT_S = 1500.0
"""A lane that has reported nothing for so long is ended. No test may take 20 minutes."""
END_S = 60.0
"""The time that an interrupted lane has for tear-down."""


class Selected(NamedTuple):
    """A test that a lane collected. `reason` is the argument of its mark `night`, if it has one. `chosen` says whether
    the lane was to run it.
    """

    test: str
    when: str
    reason: str
    chosen: bool = True


@dataclass(slots=True)
class Playing:
    """A lane that runs."""

    lane: Lane
    process: subprocess.Popen[bytes]
    folder: Path
    collects: bool = False
    """Whether the lane only collects tests, without running them."""
    results: list[Result] = field(default_factory=list)
    running: str = ""
    """The test that runs now."""
    heard_s: float = 0.0
    """The `time.monotonic` of its last report."""
    silent_s: float = 0.0
    """How long it had reported nothing when it was ended for that; 0 if it was not."""
    _offset: int = 0

    def file(self, suffix: str) -> Path:
        """Return the path of the lane's file with this suffix."""
        return self.folder / f"{self.lane.name}.{suffix}"

    @property
    def collected(self) -> list[Selected]:
        """Return all tests of the lane's files; empty until they are collected."""
        file = self.file("selected")
        lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
        rows = (line.split("\t") for line in lines)
        return [Selected(test, when, reason, bool(chosen)) for test, when, reason, chosen in rows]

    @property
    def selected(self) -> list[Selected]:
        """Return the collected tests that the lane is to run."""
        return [each for each in self.collected if each.chosen]

    def look(self) -> list[Result]:
        """Read the lines that are new in the lane's file of results, and return the results among them."""
        if not self.file("jsonl").exists():
            return []
        with self.file("jsonl").open("rb") as rows:
            rows.seek(self._offset)
            whole, end, _ = rows.read().rpartition(b"\n")
        self._offset += len(whole) + len(end)
        if end:
            self.heard_s = time.monotonic()
        new = []
        for row in map(json.loads, whole.splitlines()):
            if "running" in row:
                self.running = row["running"]
            else:
                new.append(Result(**row))
        self.results += new
        return new

    def trouble(self) -> str:
        """Return a message with the end of pytest's output, if pytest itself failed or left tests without a result;
        else "".
        """
        code = self.process.returncode
        missing = {each.test for each in self.selected if not self.collects} - {each.test for each in self.results}
        known = {each.test.partition("::")[0] for each in (*self.collected, *self.results)}
        empty = [file for file in self.lane.files if file not in known]
        if self.silent_s:
            return f"lane {self.lane.name}: ended after {self.silent_s:.0f} s in {self.running or 'collection'}"
        if code in EXPLAINED and self.file("selected").exists() and not missing:
            return f"lane {self.lane.name}: no test was collected in {' '.join(empty)}" if empty else ""
        last = self.file("log").read_text(encoding="utf-8", errors="replace").strip()[-3000:]
        where = f"in {self.running or 'collection'}, {len(missing)} tests without a result"
        return f"lane {self.lane.name}: pytest ended with exit code {code} {where}\n{last}"


@dataclass(frozen=True, slots=True)
class Played:
    """The results of lanes that have ended. `troubles` has a message for each lane whose pytest itself failed."""

    lanes: tuple[Playing, ...]
    wall_s: float

    @property
    def results(self) -> list[Result]:
        """All results, lane by lane."""
        return [result for lane in self.lanes for result in lane.results]

    @property
    def selected(self) -> list[Selected]:
        """Return all tests that the lanes were to run."""
        return [test for lane in self.lanes for test in lane.selected]

    @property
    def collected(self) -> list[Selected]:
        """Return all tests in the lanes' files."""
        return [test for lane in self.lanes for test in lane.collected]

    @property
    def troubles(self) -> list[str]:
        """Return a message for each lane whose pytest itself failed."""
        return [trouble for lane in self.lanes if (trouble := lane.trouble())]


def play(
    lanes: Sequence[Lane],
    words: Sequence[str],
    root: Path,
    folder: Path,
    environment: dict[str, str],
    take: Callable[[Result], None],
) -> Played:
    """Run pytest with the arguments `words` in each lane, from the root of a checkout, and wait for all of them.

    Logs and results are kept in the folder. `take` gets each result as soon as it is known. An interruption
    (KeyboardInterrupt) reaches each lane once, and then waits for its tear-down.
    """
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    playing = [_start(lane, words, root, folder, environment) for lane in lanes]
    said_s = 0.0
    try:
        while any(each.process.poll() is None for each in playing):
            time.sleep(0.5)
            passed_s = time.monotonic() - began
            _look(playing, take)
            _end_silent_lanes(playing)
            if passed_s - said_s >= EACH_S:
                said_s = passed_s
                say(_progress(playing, passed_s))
    finally:
        for each in playing:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGINT)
        for each in playing:
            _end(each.process)
        _look(playing, take)
    return Played(tuple(playing), time.monotonic() - began)


def _start(lane: Lane, words: Sequence[str], root: Path, folder: Path, environment: dict[str, str]) -> Playing:
    # Tethered: a lane ends with this process, however that ends.
    command = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid())]
    command += [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.gate.results", *words]
    command += [f"--results-to={folder / lane.name}.jsonl", f"--selected-to={folder / lane.name}.selected"]
    command += ["-o", f"cache_dir={folder / lane.name}", *lane.files]
    with (folder / f"{lane.name}.log").open("wb") as log:
        # A process group of its own: Ctrl-C would reach pytest twice.
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdout=log, stderr=subprocess.STDOUT, process_group=0
        )
    return Playing(lane, process, folder, "--collect-only" in words, heard_s=time.monotonic())


def _end_silent_lanes(playing: Iterable[Playing]) -> None:
    """End lanes that hang where pytest's own time limit of a test does not work: in an import, or in another thread."""
    for each in playing:
        silent_s = time.monotonic() - each.heard_s
        if each.process.poll() is None and silent_s > SILENT_S:
            each.silent_s = silent_s
            each.process.kill()


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _look(playing: Sequence[Playing], take: Callable[[Result], None]) -> None:
    for each in playing:
        for result in each.look():
            if result.result == "failed":
                say(f"FAILED {result.test}: {result.why}")
            take(result)


def say(line: str) -> None:
    """Print a line without buffering."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _progress(playing: Sequence[Playing], passed_s: float) -> str:
    """Return the line of progress: how many tests have ended, how many failed, and which test runs in each lane."""
    ended = [result.result for each in playing for result in each.results]
    selected = [len(each.selected) for each in playing]
    of = f"{sum(selected):,}" if all(selected) else "?"
    now = "".join(
        f"  | {each.lane.name}: {each.running.removeprefix('tests/')[:60] or 'collects'}"
        for each in playing
        if each.process.poll() is None
    )
    return f"[{passed_s:4.0f} s] {len(ended):,} of {of} tests, {ended.count('failed')} failed{now}"


def environment(**also: str) -> dict[str, str]:
    """Return this process's environment with `also`, and with a width that keeps pytest from cutting long lines."""
    return {**os.environ, "COLUMNS": os.environ.get("COLUMNS", "140"), **also}
