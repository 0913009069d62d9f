"""Runs `squall` as a program, and waits for what it prints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from squall.chaos.toolchain.class_archive import class_archive
from squall.chaos.toolchain.java import java

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 400
"""Time limit for a whole run on a busy machine."""


class Squall:
    """A running `squall ARGUMENTS`, in its own folder and with its own registry of runs. `out` receives its output
    instead of its log.
    """

    def __init__(self, folder: Path, arguments: Sequence[str], out: int | None = None) -> None:
        self.folder, self.log = folder, folder / "said.txt"
        self._out = self.log.open("wb")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "squall.chaos", *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._out if out is None else out,
            stderr=self._out if out is None else out,
            start_new_session=True,
        )

    def said(self) -> str:
        """Return its output so far."""
        return self.log.read_text(errors="replace")

    def until(self, words: str, limit_s: float = LIMIT_S) -> None:
        """Wait until its output contains `words`. Raises AssertionError if it ends before, or takes too long."""
        deadline = time.monotonic() + limit_s
        while words not in self.said():
            assert self.process.poll() is None, f"it ended before {words!r}:\n{self.said()}"
            assert time.monotonic() < deadline, f"not within {limit_s:g} s: {words!r}:\n{self.said()}"
            time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the harness process alone, as `timeout` or a job runner does."""
        self.process.send_signal(number)

    def code(self, limit_s: float = LIMIT_S) -> int:
        """Wait for its end, and return the exit code."""
        return self.process.wait(limit_s)

    def left_behind(self) -> list[str]:
        """Return the command lines of processes that name its folder: brokers, proxies, watchdogs, Spark."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.folder) in line:
                found.append(line)
        return found

    def close(self) -> None:
        """End it in any case."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._out.close()


@pytest.fixture(scope="session", autouse=True)
def spark_starts_as_after_a_first_run() -> None:
    """Make what only a first run makes, in a minute: these tests give a run less time to start."""
    class_archive(java(print), print)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Squall]]:
    """Yield a list. Every program that a test puts into it is ended after the test."""
    running: list[Squall] = []
    yield running
    for each in running:
        each.close()
