"""All brokers lose power at once: acknowledged records may be lost, but only those that no broker had synced."""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.log import manager
from squall.broker.log.log import Log
from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.simulation import simulate
from squall.checkers.verdict import JudgedFinding

SEED = 3


def losses(*, expected: str) -> list[JudgedFinding]:
    """Return the losses of a run of three brokers, with acks=all and min ISR 2."""
    fault = {"at_s": 3.0, "duration_s": 1.0, "action": "power_loss", "target": "all", "params": {}}
    workload = {"replication_factor": 3, "min_isr": 2, "rate": 20}
    values = {"seed": SEED, "runtime": "sim", "time_s": 6.0, "workload": workload, "faults": [fault]}
    result = simulate(make_plan({**values, "cluster": {"nodes": 3}}), stop_at_first=False)
    assert result.judgement is not None
    assert result.judgement.verdict.verdict == expected, result.reasons
    return [each for each in result.judgement.verdict.anomalies if each.name in ("lost-write", "unseen")]


def test_what_no_broker_had_synced_may_be_lost() -> None:
    assert {each.permitted for each in losses(expected="valid")} == {True}


def test_what_brokers_drop_of_what_is_left_on_their_disks_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers lost power, and then deleted further records by a bug: only the first loss is permitted."""
    sound = manager.load

    def drops_a_batch(*args: Any, topic: str, clean: bool, **more: Any) -> Log:
        log = sound(*args, topic=topic, clean=clean, **more)
        if not clean and topic.startswith("appends") and log.log_end_offset > log.log_start_offset:
            log.truncate_to(log.log_end_offset - 1)
        return log

    monkeypatch.setattr(manager, "load", drops_a_batch)
    assert {each.permitted for each in losses(expected="invalid")} == {True, False}
