"""Plants KAFKA-13636: old offsets of a rebalancing group are removed, though its members read those partitions.

While a group rebalances its subscriptions are unknown, and Kafka took that for a group without subscriptions.
"""

from __future__ import annotations

from squall.broker.coordinators.groups.rules import is_expired
from squall.broker.coordinators.groups.shard import GroupCoordinatorShard
from squall.broker.coordinators.groups.values import ExpireOffsets, GroupLogRecord, GroupState, OffsetCommitRecord
from squall.chaos.mutants.group_plans import GROUP, HALT, LEAVE, act, group_plan
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def _expired(self: GroupCoordinatorShard, request: ExpireOffsets, wall_ms: int) -> list[GroupLogRecord]:
    """Expire offsets of all topics during a rebalance."""
    group_id = request.group_id
    if self.state_of(group_id) not in (GroupState.PREPARING, GroupState.COMPLETING):
        return _SOUND(self, request, wall_ms)
    known = self.ledger.offsets.get(group_id, {})
    retention_ms = self.settings.retention_ms
    gone = [where for where, committed in known.items() if is_expired(committed, None, retention_ms, wall_ms)]
    return [OffsetCommitRecord(group_id, where, None) for where in gone]


_SOUND = GroupCoordinatorShard._expired


def plan(seed: int) -> Plan:
    """Return a plan in which the coordinator's clock jumps two minutes ahead, so that it takes the last commits for
    old. A member leaves, and the rebalance waits for another member, which is paused.
    """
    rng = draw(seed, "41b")
    at_s = rng.uniform(2.0, 2.5)
    ahead = fault(at_s, 2.5, "clock", GROUP, offset_ms=120_000)
    goes_s = at_s + rng.uniform(0.4, 0.6)
    acts = [act(goes_s - 0.1, 1, HALT, 1.2), act(goes_s, 0, LEAVE, 3.0)]
    settings = {"offsets.retention.check.interval.ms": "200", "offsets.retention.minutes": "1"}
    return group_plan(seed, [ahead], acts, time_s=6.0, settings=settings, workload={"members": 3}, sends_s=1.8)


MUTANT = Mutant(
    id="41b",
    name="offsets-expire-in-rebalances",
    title="removes the old offsets of a group that is rebalancing",
    source="KAFKA-13636",
    replaces=(ReplacedFunction(GroupCoordinatorShard, "_expired", _expired),),
    expected=("lost-position",),
    faults=("clock",),
    plan=plan,
    group=GROUPS,
)
