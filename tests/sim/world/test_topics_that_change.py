"""Administrators change topics while a simulated cluster is used. What a broker does beyond that is found."""

from __future__ import annotations

from typing import Any

import pytest

from broker.replicas.replica_manager import ReplicaManager
from chaos.plans.plan import Plan, make_plan
from chaos.runs.simulation import simulate
from workloads.client import admin

LOAD = {"rate": 20, "topics": 1, "partitions": 2, "min_bytes": 200, "max_bytes": 300, "readers": 1, "producers": 2}


def plan(how: str, seed: int = 1) -> Plan:
    fault: dict[str, Any] = {"at_s": 3.0, "duration_s": 2.0, "action": "topics", "target": "all"}
    fault["params"] = {"how": how}
    return make_plan({"seed": seed, "runtime": "sim", "time_s": 9.0, "workload": LOAD, "faults": [fault]})


@pytest.mark.parametrize("how", ["churn", "partitions", "delete_records"])
def test_what_was_asked_for_is_no_loss(how: str) -> None:
    result = simulate(plan(how), stop_at_first=False)
    assert result.verdict == "valid", result.told


def test_a_leader_that_deletes_more_than_was_asked_for_has_lost_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = ReplicaManager.delete_records

    def greedy(replicas: ReplicaManager, hosted: Any, offset: int) -> None:
        rule(replicas, hosted, hosted.state.high_watermark)

    monkeypatch.setattr(ReplicaManager, "delete_records", greedy)
    found = [simulate(plan("delete_records", seed), stop_at_first=False) for seed in (1, 2)]
    assert {each.failure.name for each in found if each.failure} == {"lost-write"}


def test_a_topic_that_lives_on_under_the_next_one_shows_as_records_that_nobody_sent_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def not_deleted(client: Any, topic_id: bytes, *more: Any) -> str:
        return ""

    monkeypatch.setattr(admin, "delete_topic", not_deleted)
    result = simulate(plan("churn"), stop_at_first=False)
    assert result.anomalies == ("phantom",), result.told
