"""Faults that wait for something: the grammar, what is refused, and a fault that waits in vain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chaos.faults.kind import FaultError
from chaos.faults.targets import ClusterView
from chaos.faults.triggers import After, Compared, kept, parse, seen_of
from chaos.plans.plan import Plan, PlanError, make_plan, read_plan, write_plan
from chaos.runs.simulation import simulate
from checkers.nemesis_log import parse_faults
from checkers.verdict import UNKNOWN

VIEW = ClusterView((1, 2, 3), 3, {"t-0": 2}, {"t-0": (1, 2)}, {"t-0": (1, 2, 3)})


@pytest.mark.parametrize(
    ("when", "condition"),
    [
        ("isr:a-b-0 == 1", Compared("isr", "a-b-0", "==", 1)),
        ("leader:t-0!=-1", Compared("leader", "t-0", "!=", -1)),
        ("controller >= 2", Compared("controller", "", ">=", 2)),
        ("fsync:2 >= 100", Compared("fsync", "2", ">=", 100)),
        ("after fault 3 began", After(3, False)),
        (" after fault 0 ended ", After(0, True)),
    ],
)
def test_the_grammar(when: str, condition: Compared | After) -> None:
    assert parse("here", when) == condition


@pytest.mark.parametrize(
    "when",
    ["", "isr == 1", "isr:t == 1", "controller:1 == 1", "fsync:x > 1", "lag:t-0 > 1", "isr:t-0 = 1", "after fault"],
)
def test_what_is_not_of_the_grammar_is_refused_with_an_example(when: str) -> None:
    with pytest.raises(FaultError, match="here: when = "):
        parse("here", when)


def test_what_is_seen_is_compared() -> None:
    assert seen_of(Compared("isr", "t-0", "==", 1), VIEW, None) == 2
    assert seen_of(Compared("leader", "t-9", "==", 1), VIEW, None) == -1
    assert seen_of(Compared("controller", "", "==", 1), VIEW, None) == 3
    assert seen_of(Compared("write", "2", "==", 1), None, lambda node, op: node * 10) == 20


def with_faults(*faults: dict[str, Any], **values: Any) -> Plan:
    listed = [{"at_s": 2, "duration_s": 1, "action": "kill", **fault} for fault in faults]
    return make_plan({"runtime": "sim", **values, "faults": listed})


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"when": "isr:appends-9-0 == 1"}, "there is no partition appends-9-0"),
        ({"when": "fsync:4 > 1"}, "there is no node 4"),
        ({"when": "after fault 0 began"}, "there is no other fault 0"),
        ({"when": "after fault 1 began"}, "there is no other fault 1"),
        ({"within_s": 3}, "there is no `when`"),
    ],
)
def test_what_can_never_come_true_is_refused_when_the_plan_is_read(fault: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        with_faults(fault)


THEIRS = {"bootstrap": "h:1", "target": "other", "cluster": {"nodes": 3, "ids": [1, 2, 3], "settings": {}}}


@pytest.mark.parametrize("runtime", ["sim", "process", "docker"])
def test_calls_of_our_own_broker_are_counted_everywhere(runtime: str) -> None:
    assert with_faults({"when": "fsync:1 > 1"}, runtime=runtime).timeline()


def test_calls_of_other_brokers_are_not_counted() -> None:
    with pytest.raises(PlanError, match="only Squall's own broker counts its calls"):
        with_faults({"when": "fsync:1 > 1"}, runtime="process", target="kafka")
    with pytest.raises(PlanError, match="somebody else's brokers do not count their calls"):
        with_faults({"when": "send:1 > 1", "action": "leadership"}, runtime="external", **THEIRS)


def test_a_plan_with_triggers_reads_back_equal(tmp_path: Path) -> None:
    plan = with_faults({}, {"when": "after fault 0 ended", "within_s": 5})
    path = tmp_path / "plan.toml"
    path.write_text(write_plan(plan))
    assert read_plan(path) == plan
    assert [fault.within_s for fault in plan.timeline()] == [0, 5]


def test_leaving_faults_out_keeps_who_waits_for_whom() -> None:
    faults = [{"when": None}, {}, {"when": "after fault 1 ended"}, {"when": "after fault 0 began"}]
    assert kept(faults, [1, 2, 3]) == [{}, {"when": "after fault 0 ended"}, {"when": None}]


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
    assert result.verdict != UNKNOWN, result.told
    faults, _ = parse_faults(result.papers()["nemesis.jsonl"].splitlines(keepends=True))
    first, second, third, _ = faults
    assert second.began > first.began + 1_000_000_000, "a follower leaves the ISR after replica.lag.time.max.ms"
    assert third.began >= second.ended


def test_a_condition_that_never_comes_true_makes_the_run_unknown() -> None:
    result = simulate(with_faults({"when": "controller == 9", "within_s": 3}, **SMALL))
    assert result.verdict == UNKNOWN
    assert any("'controller == 9' did not come true within 3 s" in each for each in result.told)
