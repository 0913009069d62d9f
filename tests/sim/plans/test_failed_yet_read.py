"""A broker that appends what it then refuses with error 19: what it calls failed is read later, and that is found."""

from __future__ import annotations

from typing import Any

import pytest

from broker.apis.produce import ProduceApi
from broker.protocol.errors import ErrorCode
from broker.replicas.waiters import ProduceResult
from chaos.mutants.hunt_plans import fault, hunt_plan
from chaos.plans.plan import Plan
from chaos.runs.simulation import simulate

APPEND = ProduceApi._append


def append_and_refuse(self: ProduceApi, h: Any, index: int, *args: Any) -> tuple[ProduceResult, Any]:
    """Where the ISR is too small for acks=all, the records are appended, and the client hears that they were not."""
    *records, acks, now_ms, wall_ms, checked = args
    refused = acks == -1 and h.state.is_leader and h.state.under_min_isr_before_append()
    result, awaited = APPEND(self, h, index, *records, 1 if refused else acks, now_ms, wall_ms, checked)
    return (ProduceResult(index, int(ErrorCode.NOT_ENOUGH_REPLICAS)), None) if refused else (result, awaited)


def plan() -> Plan:
    """Two of five nodes stand still for longer than producers try: partitions that both follow are left with one."""
    held = [fault(0.5, 9.0, "pause", "node:2"), fault(1.6, 8.0, "pause", "node:3")]
    return hunt_plan(3, held, nodes=5, workload={"partitions": 10, "delivery_timeout_ms": 1500})


def test_what_a_broker_appends_and_refuses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProduceApi, "_append", append_and_refuse)
    result = simulate(plan())
    assert result.verdict == "invalid"
    assert result.judgement is not None
    assert "failed-yet-read" in {finding.anomaly for finding in result.judgement.findings}


def test_what_a_sound_broker_refuses_is_never_read() -> None:
    result = simulate(plan())
    assert result.verdict == "valid"
    assert result.judgement is not None
    assert result.judgement.history.outcomes["send"]["error NOT_ENOUGH_REPLICAS"], "some were refused until the end"
