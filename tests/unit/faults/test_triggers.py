"""Faults that wait for something: the grammar, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.chaos.faults.kind import FaultError
from squall.chaos.faults.targets import ClusterSnapshot, CoordinatorKeys
from squall.chaos.faults.triggers import (
    OF_GROUPS,
    AfterFaultCondition,
    ConditionScope,
    NumericCondition,
    StateCondition,
    check,
    counts_calls,
    described_names,
    parse,
    renumbered_faults,
    seen_of,
)
from squall.chaos.plans.plan import Plan, PlanError, make_plan, read_plan, with_schedule, write_plan

VIEW = ClusterSnapshot((1, 2, 3), 3, {"t-0": 2}, {"t-0": (1, 2)}, {"t-0": (1, 2, 3)})


@pytest.mark.parametrize(
    ("when", "condition"),
    [
        ("isr:a-b-0 == 1", NumericCondition("isr", "a-b-0", "==", 1)),
        ("leader:t-0!=-1", NumericCondition("leader", "t-0", "!=", -1)),
        ("controller >= 2", NumericCondition("controller", "", ">=", 2)),
        ("fsync:2 >= 100", NumericCondition("fsync", "2", ">=", 100)),
        ("after fault 3 began", AfterFaultCondition(3, False)),
        (" after fault 0 ended ", AfterFaultCondition(0, True)),
    ],
)
def test_the_grammar(when: str, condition: NumericCondition | AfterFaultCondition) -> None:
    assert parse("here", when) == (condition,)


def test_conditions_are_joined_by_and() -> None:
    assert parse("here", " isr:band-0 == 1  and after fault 2 ended and controller != 3") == (
        NumericCondition("isr", "band-0", "==", 1),
        AfterFaultCondition(2, True),
        NumericCondition("controller", "", "!=", 3),
    )


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("controller == 1 or controller == 2", "'or' is not known: write two faults, one `when` each"),
        ("controller == 1 && isr:t-0 == 1", "'&&' is not known: write and"),
        ("controller == 1 and", "when = 'controller == 1 and': such as"),
        ("controller == 1 and isr == 2", "isr needs a partition"),
        ("controller == 1 and lead", "'lead' of when = "),
        ("isr:t-0 == 1 and isr:t-0 >= 2", "no number of isr:t-0 makes this true"),
        ("controller > 2 and controller < 3", "no number of controller makes this true"),
    ],
)
def test_what_is_wrong_with_a_part_is_said_with_what_to_write_instead(when: str, said: str) -> None:
    with pytest.raises(FaultError, match="here: ") as refused:
        parse("here", when)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "when",
    ["", "isr == 1", "isr:t == 1", "controller:1 == 1", "fsync:x > 1", "lag:t-0 > 1", "isr:t-0 = 1", "after fault"],
)
def test_what_is_not_of_the_grammar_is_refused_with_an_example(when: str) -> None:
    with pytest.raises(FaultError, match="here: when = "):
        parse("here", when)


SCOPE = ConditionScope(2, ["t-0", "t-1"], (1, 2, 3), names=CoordinatorKeys(("a", "b"), ("g", "h")))


def test_a_state_of_a_transaction_is_compared_and_an_unknown_one_is_not() -> None:
    (is_, is_not) = parse("here", "txn:a == PrepareCommit and txn:b != Empty")
    assert (is_, is_not) == (StateCondition("a", "PrepareCommit", False), StateCondition("b", "Empty", True))
    assert isinstance(is_, StateCondition) and isinstance(is_not, StateCondition)
    assert [is_.holds(seen) for seen in ("PrepareCommit", "Ongoing", None)] == [True, False, False]
    assert [is_not.holds(seen) for seen in ("Empty", "Ongoing", None)] == [False, True, False]
    check("here", "txn:a == PrepareCommit and txn:b != Empty", 0, SCOPE)
    assert described_names(["", "txn:b == Ongoing and controller == 1", "txn:b != Empty and txn:a == Ongoing"]) == (
        "b",
        "a",
    )


def test_a_state_of_a_group_is_compared_likewise() -> None:
    (is_, is_not) = parse("here", "group:g == PreparingRebalance and group:h != Stable")
    assert (is_, is_not) == (
        StateCondition("g", "PreparingRebalance", False, OF_GROUPS),
        StateCondition("h", "Stable", True, OF_GROUPS),
    )
    assert isinstance(is_, StateCondition)
    assert [is_.holds(seen) for seen in ("PreparingRebalance", "Stable", None)] == [True, False, False]
    check("here", "group:g == Assigning and txn:a == Ongoing and after fault 1 began", 0, SCOPE)
    assert described_names(["group:g == Empty and txn:a == Empty", "group:g != Empty"]) == ("g", "a")


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("group:g == Ongoing", "there is no state Ongoing: one of Empty, PreparingRebalance, CompletingRebalance"),
        ("group:g > Stable", "such as 'group:squall-group == PreparingRebalance'"),
        ("group:a == Stable", "there is no group a: the workload has g, h"),
        ("txn:g == Ongoing", "there is no transactional id g: the workload has a, b"),
        ("group:g == Stable and group:g == Empty", "no state of group:g makes this true"),
        ("txn:a == Prepared", "there is no state Prepared: one of Empty, Ongoing, PrepareCommit"),
        ("txn:a > Ongoing", "such as 'txn:squall-0 == PrepareCommit'"),
        ("txn:c == Ongoing", "there is no transactional id c: the workload has a, b"),
        ("txn:a == Ongoing and txn:a == Empty", "no state of txn:a makes this true"),
    ],
)
def test_a_state_that_nothing_can_be_in_is_refused(when: str, said: str) -> None:
    with pytest.raises(FaultError) as refused:
        check("here", when, 0, SCOPE)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("leader:t-0 == 9", "never true: leader:t-0 is one of -1, 1, 2, 3"),
        ("controller > 3", "never true: controller is one of -1, 1, 2, 3"),
        ("controller > -1 and controller < 1", "never true: controller is one of -1, 1, 2, 3"),
        ("isr:t-0 > 3", "never true: isr:t-0 is 0 to 3"),
        ("isr:t-0 < 0", "never true: isr:t-0 is 0 to 3"),
        ("fsync:2 < 0", "never true: fsync:2 is 0 or more"),
    ],
)
def test_a_number_that_this_cluster_can_never_show_is_refused(when: str, said: str) -> None:
    with pytest.raises(FaultError) as refused:
        check("here", when, 0, SCOPE)
    assert str(refused.value) == f"here: when = {when!r}: {said}"


@pytest.mark.parametrize(
    "when", ["leader:t-0 == -1", "controller == 3", "isr:t-1 == 0", "isr:t-0 >= 3", "fsync:2 == 0", "write:3 >= 9999"]
)
def test_a_number_that_it_can_show_is_not(when: str) -> None:
    check("here", when, 0, SCOPE)


def test_everything_that_is_wrong_with_a_condition_is_said_at_once() -> None:
    when = "isr:t-0 == 3 and isr:t-0 == 1 and leader:t-9 == 1 and after fault 7 ended and lead and fsync:8 > 1"
    with pytest.raises(FaultError) as refused:
        check("here", when, 0, SCOPE)
    for said in (
        "no number of isr:t-0 makes this true",
        "there is no partition t-9",
        "there is no other fault 7",
        "'lead' of when = ",
        "there is no node 8",
    ):
        assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) == 5


def test_what_is_seen_is_compared() -> None:
    assert seen_of(NumericCondition("isr", "t-0", "==", 1), VIEW, None) == 2
    assert seen_of(NumericCondition("leader", "t-9", "==", 1), VIEW, None) == -1
    assert seen_of(NumericCondition("controller", "", "==", 1), VIEW, None) == 3
    assert seen_of(NumericCondition("write", "2", "==", 1), None, lambda node, op: node * 10) == 20


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
        ({"when": "txn:squall-0 == Ongoing"}, "the workload has no transactional producers"),
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
    assert renumbered_faults(faults, [1, 2, 3]) == [{}, {"when": "after fault 0 ended"}, {"when": None}]


def test_leaving_a_fault_out_leaves_the_other_parts_of_a_condition() -> None:
    faults = [{}, {}, {"when": "after fault 0 began and isr:t-0 == 1 and after fault 1 ended"}]
    assert renumbered_faults(faults, [1, 2]) == [{}, {"when": "isr:t-0 == 1 and after fault 0 ended"}]
    assert renumbered_faults(faults, [2]) == [{"when": "isr:t-0 == 1"}]


def test_each_part_is_checked_against_the_plan() -> None:
    impossible = {"isr:t-0 == 1": "no partition t-0", "fsync:7 > 1": "no node 7", "after fault 1 began": "no other"}
    for part, said in impossible.items():
        with pytest.raises(PlanError, match=said):
            with_faults({}, {"when": f"after fault 0 ended and {part}"})
    assert counts_calls("after fault 0 ended and fsync:2 > 10")
    assert not counts_calls("after fault 0 ended and controller > 0")


def test_a_drawn_fault_waits_for_nothing_and_counts_no_calls() -> None:
    drawn = with_schedule({"seed": 7}, None).timeline()
    assert drawn
    assert not any(counts_calls(fault.when) for fault in drawn)
