"""A group coordinator that is cut off from other brokers still answers a member's heartbeats. That is no anomaly."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.mutants import find
from squall.chaos.plans.plan import make_plan, read_plan
from squall.chaos.runs.simulation import SimResult, simulate
from squall.checkers import nemesis_log

PLAN = read_plan(Path(__file__).with_name("a_coordinator_that_is_cut_off_answers_its_member.toml"))
SEEDS = 10


def found(result: SimResult) -> bool:
    assert result.trouble is None, result.trouble
    return "dual-ownership" in result.anomalies


def test_its_heartbeats_would_make_two_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan does reach the situation: if such heartbeats counted, the partition would have two owners."""
    monkeypatch.setattr(nemesis_log, "apart", lambda _: [])
    plans = (make_plan({**PLAN.model_dump(mode="json"), "seed": seed}) for seed in range(SEEDS))
    assert any(found(simulate(plan, stop_at_first=False)) for plan in plans)


def test_commits_make_two_owners_while_brokers_are_apart() -> None:
    """Commits that the coordinator acknowledges prove a second owner, even while a fault separates brokers."""
    mutant = find("45")
    cut = {"at_s": 1.0, "duration_s": 8.0, "action": "pause", "target": "follower", "params": {}}
    plans = (make_plan({**mutant.plan(seed).model_dump(mode="json"), "faults": [cut]}) for seed in range(SEEDS))
    assert any(found(simulate(plan, mutant="45", stop_at_first=False)) for plan in plans)
