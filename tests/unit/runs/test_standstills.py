"""Checks how long nothing ran, by two clocks."""

from __future__ import annotations

import pytest

from squall.chaos.runs.judgement import of_standstills
from squall.chaos.runs.standstills import AWAKE_S, STILL_S, ClockPair, still

BEGAN = ClockPair(1_000, 5_000)


def after(monotonic_s: float, boot_s: float) -> ClockPair:
    return ClockPair(BEGAN.monotonic + int(monotonic_s * 1e9), BEGAN.boot + int(boot_s * 1e9))


@pytest.mark.parametrize("late_s", [0.0, STILL_S - 0.1])
def test_a_look_that_comes_a_little_late_is_none(late_s: float) -> None:
    assert still(BEGAN, after(AWAKE_S + late_s, AWAKE_S + late_s)) is None


def test_a_process_that_was_stopped_stood_still_by_both_clocks() -> None:
    found = still(BEGAN, after(14.5, 14.5))
    assert found == {"began": 1_000, "s": 14.0, "suspended_s": 0.0}
    assert of_standstills({"began_ns": -30_000_000_000, "standstills": [found]}) == [
        "the harness or the machine stood still for 14 s, 30 s after the run began"
    ]


def test_a_machine_that_was_suspended_stood_still_by_one() -> None:
    found = still(BEGAN, after(AWAKE_S, 20.5))
    assert found == {"began": 1_000, "s": 20.0, "suspended_s": 20.0}
    [words] = of_standstills({"standstills": [found]})
    assert words.endswith("of which it was suspended for 20 s")
