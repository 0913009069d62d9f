"""Checks what a run shows while it is going: how far it is, and what comes next."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from squall.chaos.faults.context import FaultExecution
from squall.chaos.faults.kind import Fault
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.nemesis import UpcomingFault
from squall.chaos.runs import progress as module
from squall.chaos.runs.metrics import PHASES
from squall.chaos.runs.progress import Progress, next_words
from squall.chaos.runs.run_status import RunPhase
from squall.workloads.counters import LoadCounters


def fault(action: str, at_s: float = 0.0, when: str = "") -> Fault:
    return Fault(id=0, at_s=at_s, duration_s=1.0, kind=KINDS[action], target="leader", when=when)


@pytest.mark.parametrize(
    ("phase", "now", "words"),
    [
        (RunPhase("load", 10.0, 30.0), 22.2, "load: 12 of 30 s"),
        (RunPhase("load", 10.0, 30.0), 40.6, "load: 30 of 30 s"),
        (RunPhase("load", 10.0, 30.0), 43.0, "load: 30 s, and 3 s more"),
        (RunPhase("converge", 10.0), 10.4, "converge"),
        (RunPhase("converge", 10.0), 17.4, "converge: 7 s"),
        (RunPhase("converge", 10.0, None, 12.0), 99.0, "converge: 2 s"),
    ],
)
def test_a_phase_says_how_far_it_is(phase: RunPhase, now: float, words: str) -> None:
    assert phase.words(now) == words


def test_what_is_left_of_a_phase_never_is_less_than_nothing() -> None:
    assert RunPhase("load", 10.0, 30.0).left_s(15.0) == 25.0
    assert RunPhase("load", 10.0, 30.0).left_s(99.0) == 0.0
    assert RunPhase("converge", 10.0).left_s(15.0) is None


@pytest.mark.parametrize(
    ("coming", "words"),
    [
        ([], ""),
        ([UpcomingFault(fault("kill"), 3.2)], "kill in 3 s"),
        ([UpcomingFault(fault("kill"), 3.2), UpcomingFault(fault("pause"), 9.0)], "kill in 3 s, then pause in 9 s"),
        ([UpcomingFault(fault("kill"), at) for at in (1, 2, 3, 4)], "kill in 1 s, then kill in 2 s, and 2 more"),
        ([UpcomingFault(fault("kill", when="isr < 2"), -4.0)], "kill when isr < 2"),
        ([UpcomingFault(fault("kill"), -0.1)], "kill now"),
    ],
)
def test_the_next_faults_are_named_with_their_times(coming: Sequence[UpcomingFault], words: str) -> None:
    assert next_words(coming) == words


def shown(terminal: bool) -> tuple[Progress, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, color_system=None)
    return Progress("squall run  r1", console, then=("heal", "judge")), out


def test_a_line_of_a_pipe_says_how_far_how_much_what_hurts_and_what_comes() -> None:
    progress, out = shown(terminal=False)
    counters = LoadCounters()
    counters.acked = 500
    hurt = FaultExecution(fault("pause"), resolved=(2,), began=1)
    over = FaultExecution(fault("kill"), resolved=(1,), began=1, ended=2)
    progress.status.load, progress.status.faults = counters, (hurt, over)
    progress.status.coming = lambda: [UpcomingFault(fault("stop"), 3.0)]
    with progress.phase("load with faults", 30.0):
        pass
    line = out.getvalue()
    assert "load with faults: 0 of 30 s  500 acknowledged" in line
    assert line.rstrip().endswith("| pause 2  | next: stop in 3 s")


def test_counts_that_did_not_change_are_said_once() -> None:
    progress, out = shown(terminal=False)
    progress.status.final = LoadCounters(read=9)
    for name in ("final reads", "stop the cluster"):
        with progress.phase(name):
            pass
    first, second = out.getvalue().splitlines()
    assert "9 records read" in first and "records" not in second


def test_in_a_pipe_a_phase_that_takes_long_says_so_again_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the main thread waits for: judging waits for other processes."""
    progress, out = shown(terminal=False)
    twice = threading.Event()
    line, lines = progress._line, []

    def counted() -> None:
        line()
        lines.append(out.getvalue())
        if len(lines) == 3:
            twice.set()

    monkeypatch.setattr(progress, "_line", counted)
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.001)
    with progress.shown(), progress.phase("judge: Spark looks for anomalies"):
        assert twice.wait(10)
    told = out.getvalue().splitlines()
    assert len(told) >= 3 and all("judge: Spark looks for anomalies" in each for each in told)
    assert not [each for each in threading.enumerate() if each.name == "progress"]


RATES = [("load", 5, True), ("judge: Spark", 6, False), ("judge", 31, True)]


@pytest.mark.parametrize(("name", "after_s", "due"), RATES)
def test_while_a_history_is_judged_lines_are_rare(name: str, after_s: float, due: bool) -> None:
    progress, _ = shown(terminal=False)
    assert not progress._due(1e9), "before the first phase"
    with progress.phase(name):
        assert progress._due(progress._last + after_s) == due


def test_on_a_terminal_the_block_says_what_is_done_what_is_now_and_what_follows() -> None:
    progress, out = shown(terminal=True)
    with progress.phase("start the cluster"):
        pass
    with progress.phase("heal"):
        progress.console.print(progress._render())
    told = out.getvalue()
    assert "done" in told and "start the cluster" in told
    assert "now" in told and "heal" in told
    assert told.rstrip().splitlines()[-1].split() == ["then", "judge"], "what was reached is not to come"


def test_while_a_run_is_judged_the_block_says_nothing_of_the_load_and_what_follows() -> None:
    progress, out = shown(terminal=True)
    progress.status.load = LoadCounters(acked=7)
    with progress.phase("judge: start Spark"):
        progress.console.print(progress._render())
    told = out.getvalue()
    assert "judge: start Spark" in told and "acked" not in told
    assert "then" not in told, "judge was the last one of those that are known"


def test_the_block_of_a_whole_run_fits_a_small_terminal() -> None:
    progress, out = shown(terminal=True)
    progress.status.load = LoadCounters(acked=7)
    progress.status.faults = [FaultExecution(fault("pause"), resolved=(2,), began=1)]
    progress.status.coming = lambda: [UpcomingFault(fault("stop"), 3.0)]
    for name in ("start the cluster", *PHASES):
        with progress.phase(name):
            pass
    with progress.phase("final reads"):
        progress.console.print(progress._render())
    assert len(out.getvalue().splitlines()) <= 12


def test_the_counters_are_those_of_the_final_reads_once_they_have_begun() -> None:
    progress, _ = shown(terminal=False)
    load: Any = LoadCounters(acked=7)
    progress.status.load = load
    assert progress.status.counts()["acked"] == 7
    progress.status.final = LoadCounters(read=3)
    assert progress.status.counts() == {"final reads": 3}
