"""A disk that loses synced data, followed by a power loss: what no cluster can survive is not injected (seed 1202924).
"""

from __future__ import annotations

from typing import Any

import pytest

from squall.chaos.faults.context import FaultContext
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.simulation import SimResult, simulate

FORGETS = {"how": "EIO", "op": "fsync", "nth": 1.0}


def plan(nodes: int, *, forgets: dict[str, Any]) -> Plan:
    """Return a plan in which the disk of the first voter drops metadata writes, and then that voter loses power."""
    faults = [
        {"at_s": 1.0, "duration_s": 2.0, "action": "disk", "target": "node:1", "params": forgets},
        {"at_s": 1.5, "duration_s": 2.0, "action": "topics", "target": "all", "params": {"how": "churn"}},
        {"at_s": 10.0, "duration_s": 1.0, "action": "power_loss", "target": "node:1", "params": {}},
    ]
    workload = {
        "replication_factor": min(nodes, 2),
        "min_isr": 1,
        "rate": 20,
    }
    return make_plan(
        {
            "seed": 3,
            "runtime": "sim",
            "time_s": 14.0,
            "cluster": {"nodes": nodes},
            "workload": workload,
            "faults": faults,
        }
    )


def refused(result: SimResult) -> bool:
    return any("of the metadata there may be no other durable copy" in reason for reason in result.reasons)


def test_the_only_voter_keeps_its_power_once_its_disk_may_have_forgotten() -> None:
    result = simulate(plan(2, forgets=FORGETS))
    assert result.verdict == "unknown"
    assert refused(result)


@pytest.mark.parametrize(("nodes", "forgets"), [(3, FORGETS), (2, {**FORGETS, "op": "write"})])
def test_others_lose_it(nodes: int, forgets: dict[str, Any]) -> None:
    result = simulate(plan(nodes, forgets=forgets))
    assert not refused(result)
    assert result.judgement is not None
    [power] = [each for each in result.judgement.faults if each.action == "power_loss"]
    assert power.evidence and not power.error


def test_where_it_loses_power_all_the_same_the_metadata_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FaultContext, "check_metadata_survives", lambda *_: None)
    plans = (plan(2, forgets=FORGETS).model_copy(update={"seed": seed}) for seed in range(30))
    failures = (simulate(each).failure for each in plans)
    assert any(failure is not None and failure.name == "metadata-leader-completeness" for failure in failures)
