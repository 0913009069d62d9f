"""Checks that the CPU of other programs on the machine is counted apart from what was started to measure."""

from __future__ import annotations

import os

import pytest

from bench.machine import CpuSnapshot, ProcessUsage, others, snapshot, usage_report

BEFORE = CpuSnapshot(
    10.0,
    100.0,
    4.0,
    {1: ProcessUsage(0, "init", 5.0), 50: ProcessUsage(1, "bench", 1.0), 60: ProcessUsage(1, "pytest", 2.0)},
)
AFTER = CpuSnapshot(
    20.0,
    120.0,
    14.0,
    {
        1: ProcessUsage(0, "init", 5.0),
        50: ProcessUsage(1, "bench", 4.0),
        51: ProcessUsage(50, "broker", 9.0),
        52: ProcessUsage(51, "python", 3.0),
        60: ProcessUsage(1, "pytest", 7.0),
        61: ProcessUsage(60, "pytest", 1.0),
        70: ProcessUsage(1, "java", 2.5),
    },
)


def test_what_was_started_to_measure_is_nobody_else_and_programs_are_added_up_by_name() -> None:
    assert others(BEFORE, AFTER, 50) == [("pytest", pytest.approx(0.6)), ("java", pytest.approx(0.25)), ("init", 0.0)]


def test_a_pid_that_another_program_has_now_begins_at_nothing() -> None:
    after = CpuSnapshot(20.0, 120.0, 14.0, {60: ProcessUsage(1, "java", 1.0)})
    assert others(BEFORE, after, 50) == [("java", pytest.approx(0.1))]


def test_it_is_told_in_cores() -> None:
    lines = usage_report(BEFORE, AFTER, 50).splitlines()
    assert lines[0].startswith("Measured with Python 3.")
    assert lines[1] == "Other programs used 1.00 cores meanwhile: pytest 0.60, java 0.25."


def test_this_process_is_seen_with_its_parent() -> None:
    assert snapshot().processes[os.getpid()].parent == os.getppid()
