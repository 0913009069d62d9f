"""Checks how long nothing ran, by two clocks."""

from __future__ import annotations

import pytest

from squall.chaos.runs.judgement import standstill_troubles
from squall.chaos.runs.standstills import AWAKE_S, STILL_S, ClockPair, standstill_between

BEGAN = ClockPair(1_000, 5_000)


def after(monotonic_s: float, boot_s: float) -> ClockPair:
    return ClockPair(BEGAN.monotonic + int(monotonic_s * 1e9), BEGAN.boot + int(boot_s * 1e9))


@pytest.mark.parametrize("late_s", [0.0, STILL_S - 0.1])
def test_a_look_that_comes_a_little_late_is_none(late_s: float) -> None:
    assert standstill_between(BEGAN, after(AWAKE_S + late_s, AWAKE_S + late_s)) is None


def test_a_process_that_was_stopped_stood_still_by_both_clocks() -> None:
    found = standstill_between(BEGAN, after(14.5, 14.5))
    assert found == {"began": 1_000, "s": 14.0, "suspended_s": 0.0}
    assert standstill_troubles({"began_ns": -30_000_000_000, "standstills": [found]}) == [
        "the harness or the machine stood still for 14 s, 30 s after the run began"
    ]


def test_a_machine_that_was_suspended_stood_still_by_one() -> None:
    found = standstill_between(BEGAN, after(AWAKE_S, 20.5))
    assert found == {"began": 1_000, "s": 20.0, "suspended_s": 20.0}
    [words] = standstill_troubles({"standstills": [found]})
    assert words.endswith("of which it was suspended for 20 s")
