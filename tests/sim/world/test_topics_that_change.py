"""Administrators change topics while a simulated cluster is in use. A broker that does more than asked is found."""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.apis.produce import ProduceApi, ProduceResult
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.replica_manager import ReplicaManager
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.result import SimResult
from squall.chaos.runs.simulation import simulate
from squall.checkers.fault_classes import not_landed
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import SEND
from squall.checkers.history.values import AFTER_HEALING
from squall.workloads.client import admin, topics

LOAD = {"rate": 20, "topics": 1, "partitions": 2, "min_bytes": 200, "max_bytes": 300, "readers": 1, "producers": 2}


def plan(how: str, seed: int = 1) -> Plan:
    fault: dict[str, Any] = {"at_s": 3.0, "duration_s": 2.0, "action": "topics", "target": "all"}
    fault["params"] = {"how": how}
    return make_plan({"seed": seed, "runtime": "sim", "time_s": 9.0, "workload": LOAD, "faults": [fault]})


@pytest.mark.parametrize("how", ["churn", "partitions", "delete_records"])
def test_what_was_asked_for_is_no_loss(how: str) -> None:
    result = simulate(plan(how), stop_at_first=False)
    assert result.verdict == "valid", result.reasons


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
    assert result.anomalies == ("phantom",), result.reasons


def landed(result: SimResult) -> str | None:
    """Return why the only fault has no evidence; None if it has."""
    assert result.judgement is not None
    (fault,) = result.judgement.faults
    return not_landed(fault)


def test_records_that_are_said_to_be_deleted_and_stay_are_a_log_start_that_went_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answered(client: Any, place: Any, before: int, **more: Any) -> tuple[str, int]:
        return "", before

    monkeypatch.setattr(topics, "delete_records", answered)
    result = simulate(plan("delete_records"), stop_at_first=False)
    assert "a log began before the offset" in (landed(result) or "")
    assert result.anomalies == ("offset-regression",), result.reasons


def test_an_added_partition_that_takes_no_write_is_no_fault_that_landed_and_has_to_take_one_after_healing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append = ProduceApi._append

    def refused(apis: ProduceApi, h: Any, index: int, *more: Any) -> Any:
        if index >= LOAD["partitions"]:
            return ProduceResult(index, int(ErrorCode.NOT_ENOUGH_REPLICAS)), None
        return append(apis, h, index, *more)

    monkeypatch.setattr(ProduceApi, "_append", refused)
    result = simulate(plan("partitions"), stop_at_first=False)
    assert "an added partition acknowledged no record" in (landed(result) or "")
    assert result.anomalies == ("stuck-producer",), result.reasons


@pytest.mark.parametrize("how", ["partitions", "churn"])
def test_after_healing_every_partition_is_written_to_also_those_that_came_meanwhile(how: str) -> None:
    result = simulate(plan(how), stop_at_first=False)
    history = parse(result.run_files()["history.jsonl"].splitlines(keepends=True))
    harness = {each.proc for each in history.processes if AFTER_HEALING in each.settings}
    written = {row.part for row in history.records.rows() if row.kind == SEND and row.proc in harness}
    assert written == {each.part for each in history.partitions if not each.deleted}
    assert any(each.added for each in history.partitions if each.part in written)
    assert result.verdict == "valid", result.reasons
