"""A broker that refuses a single client: that is found although no partition shows it."""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.apis.produce import ProduceApi
from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import InitProducer, Request, TxnCoordinatorResult, TxnResponse
from squall.broker.protocol.errors import ErrorCode
from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.result import SimResult
from squall.chaos.runs.simulation import simulate
from squall.checkers.verdict import INVALID, UNKNOWN

REFUSED_ID = "squall-1"
NO_MEMBER_OF_ISR = int(ErrorCode.NOT_ENOUGH_REPLICAS)


def played(time_s: float, **workload: Any) -> SimResult:
    values = {"seed": 3, "runtime": "sim", "time_s": time_s, "warmup_s": 1.0, "workload": workload, "faults": []}
    return simulate(make_plan(values), stop_at_first=False)


def refuse_one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the coordinator refuse InitProducerId for REFUSED_ID."""
    decide = TransactionCoordinatorShard.decide

    def refused(self: TransactionCoordinatorShard, request: Request, *more: int) -> TxnCoordinatorResult:
        if isinstance(request, InitProducer) and request.transactional_id == REFUSED_ID:
            return TxnCoordinatorResult(TxnResponse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return decide(self, request, *more)

    monkeypatch.setattr(TransactionCoordinatorShard, "decide", refused)


@pytest.mark.parametrize(("time_s", "verdict", "evidence"), [(10.0, UNKNOWN, ""), (24.0, INVALID, "transactional id")])
def test_a_transactional_id_that_gets_no_producer_id_is_seen(
    time_s: float, verdict: str, evidence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_one_id(monkeypatch)
    result = played(time_s, name="transactions", rate=4, producers=2)
    assert result.verdict == verdict
    assert result.judgement is not None
    told = [(each.name, each.evidence) for each in result.judgement.verdict.anomalies]
    assert told == ([("stuck-producer", evidence)] if evidence else [])
    notes = result.judgement.verdict.notes
    assert any(each.startswith(f"the transactional id {REFUSED_ID} got no acknowledgement") for each in notes) == bool(
        evidence
    )
    if not evidence:
        [why] = result.judgement.verdict.reasons
        assert why.startswith(f"the transactional id {REFUSED_ID} committed nothing: ")


def test_a_producer_of_which_every_send_is_refused_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    append = ProduceApi._append_all

    def appended(self: ProduceApi, slot: Any, request: Any, checked: Any, _: Any) -> None:
        if not refused:
            refused.append(slot.conn.client_id)
        all_of_it = {(key, index): NO_MEMBER_OF_ISR for key, parts in request.topics for index, _ in parts}
        append(self, slot, request, checked, all_of_it if slot.conn.client_id in refused else None)

    monkeypatch.setattr(ProduceApi, "_append_all", appended)
    result = played(30.0, name="appends", rate=12, topics=1, partitions=2, producers=2)
    assert result.judgement is not None
    assert [(each.name, each.evidence) for each in result.judgement.verdict.anomalies if not each.permitted] == [
        ("stuck-producer", "producer")
    ]
