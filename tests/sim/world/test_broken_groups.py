"""A rule of groups is taken out of whole brokers, or of members: in a simulation the invariant for it sees that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from squall.broker.coordinators.groups.ledger import ReplayedGroupState
from squall.broker.coordinators.groups.values import NO_PRODUCER, OffsetCommitRecord
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.simulation import simulate
from squall.workloads.client.groups import membership
from squall.workloads.registry import SCENARIOS

pytestmark = pytest.mark.gate

SEEDS = range(3)


def plan(seed: int, workload: str) -> Plan:
    load = {"name": workload, "rate": 4, "partitions": 2, "churn": 30, "poll_pause_ms": 200}
    cluster = {"nodes": 3, "settings": {**SCENARIOS[workload].BROKERS, "offsets.topic.num.partitions": "1"}}
    return make_plan({"seed": seed, "runtime": "sim", "time_s": 8, "workload": load, "faults": [], "cluster": cluster})


def every_third_is_lost(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Replace a rule of a shard so that every third committed offset is not replayed."""
    seen = 0

    def replay(self: ReplayedGroupState, written: Any, at: int, producer_id: int = NO_PRODUCER) -> None:
        nonlocal seen
        seen += isinstance(written, OffsetCommitRecord)
        if seen % 3 or not isinstance(written, OffsetCommitRecord):
            rule(self, written, at, producer_id)

    return replay


def as_if_committed(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Offsets of transactions count at once."""
    return lambda self, written, at, producer_id=NO_PRODUCER: rule(self, written, at, NO_PRODUCER)


def everything_to_everybody(rule: Callable[..., bytes]) -> Callable[..., bytes]:
    return lambda places: rule([("groups-0", 0), ("groups-0", 1)])


def nothing_is_pending(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A marker changes nothing."""
    return lambda self, producer_id, commit, at: ()


Broken = tuple[str, str, Any, str, Callable[[Any], Any]]
"""The invariant, a workload, and whose attribute is what instead."""
BROKEN: list[Broken] = [
    ("group-state-is-a-replay", "groups", ReplayedGroupState, "replay", every_third_is_lost),
    ("group-state-is-a-replay", "pipeline", ReplayedGroupState, "end_transaction", nothing_is_pending),
    ("offsets-wait-for-their-marker", "pipeline", ReplayedGroupState, "replay", as_if_committed),
    ("one-owner-per-partition", "groups", membership, "assignment", everything_to_everybody),
]


@pytest.mark.parametrize(("name", "workload", "owner", "attribute", "made"), BROKEN)
def test_what_breaks_groups_is_seen_by_its_invariant(
    name: str, workload: str, owner: Any, attribute: str, made: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, attribute, made(getattr(owner, attribute)))
    found: set[str] = set()
    for seed in SEEDS:
        result = simulate(plan(seed, workload), stop_at_first=False)
        found |= {each.name for each in result.violations}
        if name in found:
            return
    raise AssertionError(f"{name} was not broken, but {sorted(found)}")
