"""Faults of group members: one crashes, one has a second process with the same instance id. The coordinator notices."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from squall.chaos.faults.kinds.member_crash import KIND as MEMBER_CRASH
from squall.chaos.faults.kinds.member_twin import KIND as MEMBER_TWIN
from squall.chaos.faults.proofs import instance_id_was_fenced
from squall.chaos.plans.group_scenes import members_that_vanish
from squall.chaos.plans.plan import PlanError, make_plan, with_schedule
from squall.chaos.plans.swarm import _drawn, _staged, swarm_plan
from squall.chaos.runs.simulation import simulate
from squall.workloads.registry import SCENARIOS

GROUPS = {
    "name": "groups", "rate": 4, "partitions": 3, "members": 2, "churn": 0, "poll_pause_ms": 200,
    "session_timeout_ms": 1500, "max_poll_interval_ms": 2000,
}  # fmt: skip
PIPELINE = {"name": "pipeline", "rate": 3, "partitions": 2, "instances": 2, "churn": 0, "poll_pause_ms": 200}


def fault(at_s: float, action: str, target: str = "member", duration_s: float = 1.5) -> dict[str, Any]:
    return {"at_s": at_s, "duration_s": duration_s, "action": action, "target": target}


def values_of(load: dict[str, Any], *faults: dict[str, Any]) -> dict[str, Any]:
    scenario = SCENARIOS[load["name"]]
    cluster = {"nodes": 3, "settings": {**scenario.BROKERS, **scenario.suited_brokers(load)}}
    time_s = 8.0 + max((each["at_s"] for each in faults), default=0.0)
    return {"runtime": "sim", "seed": 4, "time_s": time_s, "cluster": cluster, "workload": load, "faults": faults}


def played(load: dict[str, Any], *faults: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the evidence of each fault of a valid run in which all of them took effect."""
    result = simulate(make_plan(values_of(load, *faults)))
    assert result.verdict == "valid", result.reasons
    last = {line["id"]: line for line in map(json.loads, result.run_files()["nemesis.jsonl"].splitlines())}
    assert all(line["evidence"] for line in last.values()), [line["error"] for line in last.values()]
    return [line["evidence"] for line in last.values()]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_crashes_keeps_its_place_until_its_session_is_over(protocol: str) -> None:
    (seen,) = played({**GROUPS, "group_protocol": protocol}, fault(2, "member_crash", "member:1", 5))
    assert seen["client"] == "member 1"
    assert 1.0 <= seen["given_up_s"] <= 2.0, "its last heartbeat was up to a fifth of the session ago"
    assert seen["given_up_s"] - 0.5 < seen["listed_until_s"] < seen["given_up_s"], "asked all the time"
    assert (
        f"gave it up between {seen['listed_until_s']} and {seen['given_up_s']} s after"
        in MEMBER_CRASH.describe_evidence(seen)
    )


def test_of_two_members_and_one_partition_the_one_that_has_it_crashes() -> None:
    crashes = [fault(at_s, "member_crash") for at_s in (3, 9, 15)]
    assert [seen["owns"] for seen in played({**GROUPS, "partitions": 1}, *crashes)] == [True] * 3


def test_a_classic_member_with_an_instance_id_is_not_given_up_but_followed() -> None:
    (seen,) = played({**GROUPS, "static_members": True}, fault(2, "member_crash", "member:1", 0.6))
    assert "given_up_s" not in seen
    assert 0.6 <= seen["taken_over_s"] <= 1.2 and seen["listed_until_s"] >= 0.5
    assert "until its successor took its place between" in MEMBER_CRASH.describe_evidence(seen)


def test_a_classic_member_whose_instance_id_is_taken_is_fenced() -> None:
    (seen,) = played({**GROUPS, "static_members": True}, fault(2, "member_twin", "member:1"))
    assert seen["told_first"] == "FENCED_INSTANCE_ID"
    assert {"process": seen["first"], "told": "FENCED_INSTANCE_ID", "times": 1} in seen["fenced"]


def test_a_consumer_groups_member_keeps_its_instance_id_and_the_second_is_refused() -> None:
    load = {**GROUPS, "static_members": True, "group_protocol": "consumer"}
    (seen,) = played(load, fault(2, "member_twin"))
    assert (seen["told_first"], seen["told_second"]) == ("", "UNRELEASED_INSTANCE_ID")
    assert seen["fenced"] == [{"process": seen["second"], "told": "UNRELEASED_INSTANCE_ID", "times": 1}]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_twin_waits_for_a_member_that_stands_still_beyond_its_session(protocol: str) -> None:
    """If it did not wait, it would find no member to fence, or would replace one whose session has expired."""
    load = {**GROUPS, "static_members": True, "group_protocol": protocol}
    values = values_of(load, fault(3, "member_twin", "member:1"))
    operations = [[at_s + part / 10, 0, "send", part, 200] for at_s in range(10) for part in range(3)]
    result = simulate(make_plan({**values, "operations": sorted([*operations, [2.5, 1, "halt", 4000, 0]])}))
    assert result.verdict == "valid", result.reasons
    (*_, last) = map(json.loads, result.run_files()["nemesis.jsonl"].splitlines())
    seen = last["evidence"]
    assert seen is not None, last["error"]
    fenced = "first" if protocol == "classic" else "second"
    assert seen["fenced"][0]["process"] == seen[fenced], "the same as of one that never stood still"


def test_an_early_fencing_is_evidence_whatever_the_process_is_told_later() -> None:
    first = {"process": 9, "told": "FENCED_INSTANCE_ID", "times": 2}
    seen = {
        "client": "reader 2", "instance": "i", "first": 9, "second": 11, "fenced": [first],
        "told_first": "GROUP_ID_NOT_FOUND", "told_second": "",
    }  # fmt: skip
    assert instance_id_was_fenced(seen, {}, ()) == ""
    assert MEMBER_TWIN.describe_evidence(seen).endswith(
        "process 9 was told FENCED_INSTANCE_ID, in the end GROUP_ID_NOT_FOUND."
    )
    assert (
        instance_id_was_fenced({**seen, "fenced": []}, {}, ()) == "neither was process 9 fenced nor process 11 refused"
    )
    assert instance_id_was_fenced({**seen, "fenced": [{**first, "process": 3}]}, {}, ()), "of a stranger"


@pytest.mark.parametrize("name", ["pipeline", "semantics"])
def test_an_instance_of_an_application_is_a_member_that_can_crash(name: str) -> None:
    (seen,) = played({**PIPELINE, "name": name}, fault(3, "member_crash", "member:1"))
    assert seen["client"] == "member 1", "by its number in the plan's target"


@pytest.mark.parametrize(
    ("load", "given", "why"),
    [
        (GROUPS, fault(1, "member_twin"), "no member has an instance id"),
        ({**GROUPS, "static_members": True}, fault(1, "member_twin", "member:0"), "there is no member:0"),
        (GROUPS, fault(1, "member_crash", "member:2"), "there is no member:2: the workload has member:0 to member:1"),
        (GROUPS, fault(1, "member_crash", "reader:0"), "one of member"),
        (GROUPS, fault(1, "client", "member:0"), "one of producer, reader"),
        ({"name": "appends"}, fault(1, "member_crash"), "the workload has no consumer group"),
        ({**PIPELINE}, fault(1, "member_twin"), "no member has an instance id"),
    ],
)
def test_a_plan_says_which_members_it_lacks(load: dict[str, Any], given: dict[str, Any], why: str) -> None:
    with pytest.raises(PlanError, match=why):
        make_plan(values_of(load, given))


def test_they_are_drawn_where_they_are_asked_for_and_in_scenes_of_swarms() -> None:
    values = {key: value for key, value in values_of({**GROUPS, "static_members": True}).items() if key != "faults"}
    plan = with_schedule({**values, "time_s": 40.0}, ("member_crash", "member_twin"))
    assert {(each.action, each.target) for each in plan.faults} == {
        ("member_crash", "member"),
        ("member_twin", "member"),
    }
    for name in ("groups", "pipeline", "semantics"):
        drawn = [{each.action for each in swarm_plan(seed, workload=name).faults} for seed in range(100)]
        assert 1 <= sum("member_crash" in each for each in drawn) <= 30, name
    assert any(
        "member_twin" in {each.action for each in swarm_plan(seed, workload="groups").faults} for seed in range(100)
    )


def test_members_vanish_in_their_scene() -> None:
    values = _drawn(1, None, SCENARIOS["groups"])
    values["workload"] |= {"static_members": True}
    staged = _staged(values, members_that_vanish(Random(5), ["squall-group"], values["workload"]))
    result = simulate(make_plan(staged))
    assert result.verdict == "valid", result.reasons
    last = {line["id"]: line for line in map(json.loads, result.run_files()["nemesis.jsonl"].splitlines())}
    assert {line["action"] for line in last.values() if line["evidence"]} >= {"member_crash", "member_twin"}
