"""A program that is started during a run, waits for its history, and takes no CPU until then."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from squall.chaos.runs import prestarted_spark
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.prestarted_spark import PrestartedSpark, prestart_spark
from squall.chaos.runtimes.real.proc import run_state
from squall.chaos.toolchain.java import JavaRuntime
from squall.checkers.stages import READY, line_of

WAITS = f"""
import subprocess, sys
other = subprocess.Popen(["sleep", "600"])
print(other.pid, {line_of(READY)!r}, sep="\\n", flush=True)
told = sys.stdin.readline()
other.kill()
print("told" if told else "not wanted", flush=True)
"""
DEAF = """
import signal, subprocess
print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
signal.pause()
"""
LIMIT_S, POLL_S = 30, 0.01

Start = Callable[[str], PrestartedSpark]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a program that has printed its first lines."""
    started = []

    def start(program: str) -> PrestartedSpark:
        started.append(PrestartedSpark(RunDirectory(tmp_path), [sys.executable, "-c", program]))
        if program:
            wait_for("\n", started[-1])
        return started[-1]

    yield start
    for each in started:
        each.end()


def wait_until(holds: Callable[[], bool], otherwise: str) -> None:
    until = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < until, otherwise
        time.sleep(POLL_S)


def wait_for(word: str, printed: PrestartedSpark) -> None:
    wait_until(lambda: word in printed.log.read_text(), f"no {word!r} was printed")


def said(each: PrestartedSpark) -> list[str]:
    return each.log.read_text().splitlines()


def test_it_goes_on_when_it_is_told(start: Start) -> None:
    program = (waiting := start(WAITS)).begin()
    assert program is not None
    assert program.wait(LIMIT_S) == 0
    assert said(waiting)[-1] == "told"


def test_it_and_what_it_starts_have_only_the_cpu_that_is_left_until_it_is_told(start: Start) -> None:
    waiting = start(WAITS)
    other = int(said(waiting)[0])
    assert os.sched_getscheduler(other) == os.SCHED_IDLE
    if not prestarted_spark._raise_priority(os.getppid()):
        pytest.skip("only a privileged user may hurry a process")
    assert prestarted_spark._raise_priority(waiting._program.pid)
    assert [os.sched_getscheduler(pid) for pid in (waiting._program.pid, other)] == [os.SCHED_OTHER] * 2


def test_one_that_is_not_wanted_leaves_by_itself(start: Start) -> None:
    waiting = start(WAITS)
    waiting.end()
    assert said(waiting)[-1] == "not wanted"
    waiting.end()


def test_one_that_does_not_leave_is_ended_with_what_it_started(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prestarted_spark, "PATIENCE_S", 0.05)
    deaf = start(DEAF)
    deaf.end()
    assert deaf._program.returncode == -signal.SIGKILL
    wait_until(lambda: run_state(int(said(deaf)[0])) in (None, "Z"), "what it started runs on")


def test_what_one_that_has_died_left_behind_is_ended(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prestarted_spark, "PATIENCE_S", 0.05)
    deaf = start(DEAF)
    other = int(said(deaf)[0])
    deaf._program.kill()
    deaf._program.wait(LIMIT_S)
    assert deaf.begin() is None
    deaf.end()
    wait_until(lambda: run_state(other) in (None, "Z"), "what it started runs on")


def test_one_that_has_died_is_of_no_use(start: Start) -> None:
    dead = start("")
    dead._program.wait(LIMIT_S)
    assert dead.begin() is None


@pytest.mark.parametrize(("program", "useful"), [(WAITS, True), (DEAF, False)], ids=["ready", "not ready"])
def test_one_that_cannot_be_hurried_is_of_use_only_if_it_is_ready(
    start: Start, monkeypatch: pytest.MonkeyPatch, program: str, *, useful: bool
) -> None:
    monkeypatch.setattr(prestarted_spark, "_raise_priority", lambda pid: False)
    monkeypatch.setattr(prestarted_spark, "PATIENCE_S", 0.05)
    waiting = start(program)
    if useful:
        wait_for(READY, waiting)
    assert (waiting.begin() is not None) == useful


@pytest.mark.parametrize(
    ("free_mib", "starts"), [(prestarted_spark.FREE_MEMORY_MIB, True), (prestarted_spark.FREE_MEMORY_MIB - 1, False)]
)
def test_nothing_is_started_where_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_mib: float, *, starts: bool
) -> None:
    monkeypatch.setattr(prestarted_spark, "_free_memory_mib", lambda: free_mib)
    monkeypatch.setattr(prestarted_spark, "java", lambda say: JavaRuntime(tmp_path / "no java", 17))
    started = prestart_spark(RunDirectory(tmp_path), print)
    if started is not None:
        started.end()
    assert (started is not None) == starts


def test_memory_is_what_this_machine_and_its_container_have_left() -> None:
    told = Path("/proc/meminfo").read_text().splitlines()[0]
    assert 0 < prestarted_spark._free_memory_mib() <= int(told.split()[1]) / 1024
