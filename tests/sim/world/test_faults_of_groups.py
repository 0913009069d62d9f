"""Faults aimed at groups: at their coordinator, at a state of a rebalance, or at members' requests."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from squall.chaos.plans.group_scenes import GroupScene, coordinators_that_go, expired_offsets, slow_loads
from squall.chaos.plans.plan import make_plan
from squall.chaos.plans.swarm import _drawn, _staged, swarm_plan
from squall.chaos.runs.simulation import simulate
from squall.workloads.registry import SCENARIOS

SLOW_SYNC = {"api": "SyncGroup", "act": "delay", "delay_ms": 600, "count": 0, "side": "clients"}
BEATS = {"api": "Heartbeat", "act": "error", "error": "REBALANCE_IN_PROGRESS", "count": 1, "side": "clients"}
COMMITS = {"api": "OffsetCommit", "act": "error", "error": "NOT_COORDINATOR", "count": 1, "side": "clients"}
OFFSETS = {"api": "TxnOffsetCommit", "act": "delay", "delay_ms": 700, "count": 2, "side": "clients"}
GROUPS = {
    "name": "groups", "rate": 4, "partitions": 3, "members": 2, "churn": 0, "poll_pause_ms": 200,
    "session_timeout_ms": 1500, "max_poll_interval_ms": 2000,
}  # fmt: skip
PIPELINE = {"name": "pipeline", "rate": 3, "partitions": 2, "instances": 2, "churn": 0, "poll_pause_ms": 200}


def fault(at_s: float, duration_s: float, action: str, target: str, **more: Any) -> dict[str, Any]:
    return {"at_s": at_s, "duration_s": duration_s, "action": action, "target": target, **more}


def played(load: dict[str, Any], faults: list[dict[str, Any]], time_s: float) -> dict[int, dict[str, Any]]:
    """Return the last line of each fault of a valid run in which all of them took effect."""
    cluster = {"nodes": 3, "settings": SCENARIOS[load["name"]].BROKERS}
    values = {"runtime": "sim", "seed": 4, "time_s": time_s, "cluster": cluster, "workload": load, "faults": faults}
    result = simulate(make_plan(values))
    assert result.verdict == "valid", result.reasons
    last = {line["id"]: line for line in map(json.loads, result.run_files()["nemesis.jsonl"].splitlines())}
    assert all(line["evidence"] for line in last.values()), [line["error"] for line in last.values()]
    return last


def test_a_coordinator_is_hit_in_each_phase_of_a_rebalance_and_members_are_told_errors() -> None:
    group = "group:squall-group"
    faults = [
        fault(1, 3, "protocol", "coordinator:squall-group", params=BEATS),
        fault(1, 1, "kill", "coordinator:squall-group", when=f"{group} == PreparingRebalance", within_s=5),
        fault(6, 6, "protocol", "all", params=SLOW_SYNC),
        fault(6, 4, "client", "reader:0", params={"how": "pause"}),
        fault(6, 1, "pause", "coordinator", when=f"after fault 2 began and {group} == CompletingRebalance", within_s=9),
        fault(14, 2, "protocol", "coordinator", params=COMMITS, when=f"{group} == Stable", within_s=5),
    ]
    last = played(GROUPS, faults, time_s=18)
    assert last[1]["trigger"]["seen"] == "PreparingRebalance"
    assert last[4]["trigger"]["seen"][1] == "CompletingRebalance"
    assert len(last[1]["target"]["resolved"]) == 1


def test_offsets_of_a_transaction_come_late_to_the_coordinator_of_the_pipelines_group() -> None:
    begun = "after fault 0 began and txn:squall-0 == Ongoing"
    faults = [
        fault(3, 3, "protocol", "coordinator:squall-pipeline", params=OFFSETS),
        fault(3, 1, "kill", "coordinator:squall-pipeline", when=begun, within_s=5),
    ]
    last = played(PIPELINE, faults, time_s=12)
    assert last[1]["trigger"]["seen"][1] == "Ongoing"


def test_seeds_aim_at_coordinators_of_groups_and_at_what_members_ask() -> None:
    for workload, asked in (("groups", "OffsetCommit"), ("pipeline", "TxnOffsetCommit")):
        faults = [fault for seed in range(200) for fault in swarm_plan(seed, workload=workload).faults]
        assert {"kill", "pause"} <= {fault.action for fault in faults if fault.target == "coordinator"}
        assert {"Heartbeat", "ConsumerGroupHeartbeat", asked, "Produce"} <= {
            fault.params.get("api") for fault in faults
        }


@pytest.mark.parametrize("workload", ["groups", "pipeline", "semantics"])
def test_members_are_asked_for_nothing_that_their_protocol_does_not_have(workload: str) -> None:
    none_of = {"classic": {"ConsumerGroupHeartbeat"}, "consumer": {"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"}}
    protocols: set[str] = set()
    for seed in range(60):
        plan = swarm_plan(seed, workload=workload)
        load = plan.workload.model_dump()
        if not load.get("conversions") and load["group_protocol"] != "mixed":
            protocols.add(load["group_protocol"])
            asked = {fault.params["api"] for fault in plan.faults if fault.action == "protocol"}
            assert not asked & none_of[load["group_protocol"]], seed
    assert protocols == {"classic", "consumer"}


RARE = {
    coordinators_that_go: "coordinator lost in a rebalance",
    slow_loads: "rebalance while its coordinator loads",
    expired_offsets: "offsets expired",
}


@pytest.mark.parametrize(("scene", "path"), RARE.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_a_scene_takes_the_path_that_it_is_made_for(scene: GroupScene, path: str) -> None:
    for seed in range(8):
        values = _drawn(seed, None, SCENARIOS["groups"])
        staged = _staged(values, scene(Random(seed), ["squall-group"], values["workload"]))
        result = simulate(make_plan(staged))
        assert result.verdict == "valid", (seed, result.reasons)
        if result.counts[path]:
            return
    raise AssertionError(f"none of 8 seeds has {path!r}")
