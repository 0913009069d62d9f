"""Plants KAFKA-8069: offsets without an expiry time are treated as if they had expired long ago.

Kafka 2.1 read the default of an old record, -1, as a time. It then removed the offsets of groups that had no members at
that moment as soon as it looked for expired offsets.
"""

from __future__ import annotations

from squall.broker.coordinators.groups import shard
from squall.broker.coordinators.groups.values import GroupRecord, OffsetAndMetadata
from squall.chaos.mutants.group_plans import LEAVE, act, group_plan
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def is_expired(committed: OffsetAndMetadata, group: GroupRecord | None, retention_ms: int, wall_ms: int) -> bool:
    """Return whether the expiry time in the record has passed, even if it is -1 (the record has none). The correct
    function then uses offsets.retention.minutes instead.
    """
    return wall_ms >= committed.expires_ms


def plan(seed: int) -> Plan:
    """Return a plan in which all members leave at the same time, twice, and come again after the coordinator has looked
    for expired offsets.
    """
    rng = draw(seed, "41")
    acts = []
    for at_s in (2.5, 5.5):
        begins_s, away_s = at_s + rng.uniform(0.0, 0.5), rng.uniform(1.2, 1.8)
        acts += [act(begins_s + rng.uniform(0.0, 0.2), who, LEAVE, away_s) for who in range(2)]
    settings = {"offsets.retention.check.interval.ms": "300"}
    return group_plan(seed, [], acts, time_s=8.0, settings=settings)


MUTANT = Mutant(
    id="41",
    name="offsets-expire-at-once",
    title="removes the offsets of a group without members as soon as it looks for expired ones",
    source="KAFKA-8069",
    replaces=(ReplacedFunction(shard, "is_expired", is_expired),),
    expected=("lost-position",),
    faults=(),
    plan=plan,
    group=GROUPS,
)
