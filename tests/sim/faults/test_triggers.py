"""Faults of a simulated run that begin at a condition, and a fault whose condition never comes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.simulation import simulate
from squall.checkers.nemesis_log import parse_faults
from squall.checkers.verdict import UNKNOWN

pytestmark = pytest.mark.gate


def with_faults(*faults: dict[str, Any], **values: Any) -> Plan:
    listed = [{"at_s": 2, "duration_s": 1, "action": "kill", **fault} for fault in faults]
    return make_plan({"runtime": "sim", **values, "faults": listed})


SMALL = {
    "seed": 3,
    "warmup_s": 1,
    "time_s": 14,
    "workload": {"topics": 1, "partitions": 1, "producers": 1, "readers": 1, "rate": 20},
}


def test_a_fault_begins_when_its_condition_is_true_and_not_before() -> None:
    result = simulate(
        with_faults(
            {"target": "follower:appends-0-0", "action": "pause", "duration_s": 6},
            {"at_s": 0, "when": "isr:appends-0-0 == 2", "action": "leadership", "target": "all", "within_s": 10},
            {"at_s": 0, "when": "after fault 1 ended", "action": "reset", "target": "controller"},
            {"at_s": 0, "when": "fsync:1 >= 1", "action": "latency"},
            **SMALL,
        )
    )
    assert result.verdict != UNKNOWN, result.reasons
    faults, _ = parse_faults(result.run_files()["nemesis.jsonl"].splitlines(keepends=True))
    first, second, third, _ = faults
    assert second.began > first.began + 1_000_000_000, "a follower leaves the ISR after replica.lag.time.max.ms"
    assert third.began >= second.ended


def test_a_fault_waits_until_all_parts_of_its_condition_are_true_at_once() -> None:
    result = simulate(
        with_faults(
            {"target": "follower:appends-0-0", "action": "pause", "duration_s": 6},
            {"at_s": 0, "when": "after fault 0 ended", "action": "reset", "target": "controller"},
            {
                "at_s": 0,
                "when": "isr:appends-0-0 == 3 and after fault 0 ended and leader:appends-0-0 > 0",
                "action": "reset",
                "target": "leader:appends-0-0",
            },
            **SMALL,
        )
    )
    assert result.verdict != UNKNOWN, result.reasons
    first, second, third = [
        json.loads(line) for line in result.run_files()["nemesis.jsonl"].splitlines() if b'"ended":null' not in line
    ][-3:]
    assert second["trigger"]["seen"] == first["ended"]
    assert third["trigger"]["seen"][0] == 3, "the follower is back in the ISR"
    assert third["trigger"]["seen"][1] == first["ended"]
    assert third["began"] > second["began"], "which takes it a while"


def test_a_condition_that_never_comes_true_makes_the_run_unknown() -> None:
    result = simulate(with_faults({"when": "fsync:2 >= 1000000", "within_s": 3}, **SMALL))
    assert result.verdict == UNKNOWN
    assert any("'fsync:2 >= 1000000' did not come true within 3 s" in each for each in result.reasons)
