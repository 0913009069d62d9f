"""The operations of the workload `groups`, and what a seed draws of them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from squall.broker.config import load_config
from squall.chaos.plans.operations import concrete
from squall.chaos.plans.plan import PlanError, make_plan, read_plan, write_plan
from squall.chaos.plans.swarm import swarm_plan
from squall.workloads.groups import GroupsLoad
from squall.workloads.groups.acts import (
    HALT,
    OF_ALL,
    OF_MEMBERS,
    PAUSE,
    SEND,
    TWIN,
    GroupAction,
)

LOAD = {
    "name": "groups", "rate": 4, "members": 2, "partitions": 4, "poll_pause_ms": 200,
    "session_timeout_ms": 1500, "max_poll_interval_ms": 2000,
}  # fmt: skip


def test_brokers_give_members_of_consumer_groups_up_when_the_load_says_so() -> None:
    assert GroupsLoad.suited_brokers({**LOAD, "group_protocol": "classic"}) == {}
    settings = GroupsLoad.suited_brokers({**LOAD, "group_protocol": "consumer"})
    assert settings["group.consumer.session.timeout.ms"] == "1500"
    assert settings["group.consumer.heartbeat.interval.ms"] == "300"
    for session_ms in (500, 300_000):  # the shortest and the longest that a load may ask for
        broker = GroupsLoad.suited_brokers({"group_protocol": "consumer", "session_timeout_ms": session_ms})
        assert load_config({"node.id": "1", **broker})


def test_what_a_seed_draws_is_a_load_and_is_the_same_again(tmp_path: Path) -> None:
    load = {**LOAD, "static_members": True, "churn": 120, "conversions": 6, "deletions": 6, "away_s": 3}
    table = {"seed": 7, "runtime": "sim", "time_s": 30, "workload": load}
    plan = concrete(make_plan(table))
    done = [GroupAction(*each) for each in plan.operations or ()]
    assert {act.do for act in done} == {SEND, *OF_MEMBERS, *OF_ALL}
    assert all(not plan.workload.wrong(act) for act in done)
    (tmp_path / "plan.toml").write_text(write_plan(plan))
    assert tomllib.loads((tmp_path / "plan.toml").read_text())["operations"] == [list(act) for act in done]
    assert read_plan(tmp_path / "plan.toml") == plan == concrete(make_plan(table))


@pytest.mark.parametrize(
    ("act", "why"),
    [
        ([1, 0, "jump", 1, 0], "jump"),
        ([1, 1, SEND, 0, 200], "who 1 of send"),
        ([1, 0, SEND, 4, 200], "number 4 of send"),
        ([1, 0, SEND, 0, 1], "bytes 1 of send"),
        ([1, 2, PAUSE, 100, 0], "who 2 of pause"),
        ([1, 1, HALT, 0, 0], "number 0 of halt"),
        ([1, 1, TWIN, 100, 0], "no instance id"),
    ],
)
def test_an_act_that_cannot_be_is_refused(act: list[Any], why: str) -> None:
    with pytest.raises(PlanError, match=why):
        make_plan({"workload": LOAD, "operations": [act], "runtime": "sim"})


def test_mixed_members_convert_by_themselves_and_name_both_assignors() -> None:
    table = {**LOAD, "group_protocol": "mixed", "assignor": "range", "server_assignor": "range"}
    assert make_plan({"workload": table, "runtime": "sim"}).workload.traffic().coordinator_apis == ("OffsetCommit",)
    with pytest.raises(PlanError, match="mixed members have no other protocol"):
        make_plan({"workload": {**table, "conversions": 1}, "runtime": "sim"})
    with pytest.raises(PlanError, match="group_protocol mixed: aiokafka speaks the classic protocol"):
        make_plan({"workload": {**table, "client": "aiokafka"}, "runtime": "process"})


@pytest.mark.parametrize("given", [{"server_assignor": "range"}, {"group_protocol": "consumer", "assignor": "range"}])
def test_an_assignor_of_the_other_protocol_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(PlanError, match="ask for none"):
        make_plan({"workload": {**LOAD, **given}, "runtime": "sim"})


def test_a_swarm_draws_members_of_all_kinds() -> None:
    loads = [swarm_plan(seed, workload="groups").workload for seed in range(40)]
    assert {each.assignor for each in loads if isinstance(each, GroupsLoad)} == {
        "range", "roundrobin", "cooperative-sticky",
    }  # fmt: skip
    assert {(each.group_protocol, each.server_assignor) for each in loads if isinstance(each, GroupsLoad)} == {
        ("classic", "uniform"), ("consumer", "uniform"), ("consumer", "range"),
        ("mixed", "uniform"), ("mixed", "range"),
    }  # fmt: skip
    assert {each.static_members for each in loads if isinstance(each, GroupsLoad)} == {False, True}
    assert {bool(each.conversions) for each in loads if isinstance(each, GroupsLoad)} == {False, True}
    assert {bool(each.deletions) for each in loads if isinstance(each, GroupsLoad)} == {False, True}
