"""Plants KAFKA-2000 (2015): committed offsets stayed when their topic was deleted.

A topic of the same name begins at offset 0 again. A group that had read the earlier topic resumes at the old offset and
skips records below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.shard import GroupCoordinatorShard
from squall.chaos.mutants.group_plans import GROUPS_LOAD, PIPELINE_LOAD, group_plan
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.values import OffsetAndMetadata, TopicPartition


def _is_orphan(self: GroupCoordinatorShard, where: TopicPartition, committed: OffsetAndMetadata) -> bool:
    """Return False: an offset outlives its topic."""
    return False


def plan(seed: int) -> Plan:
    """Return a plan that deletes and recreates a topic that a group has read. The seed decides whether the workload is
    `groups` or `pipeline`.
    """
    rng = draw(seed, "81")
    again = fault(rng.uniform(2.5, 3.5), rng.uniform(2.0, 3.0), "topics", "all", how="remake")
    return group_plan(seed, [again], [], time_s=9.0, load=rng.choice((GROUPS_LOAD, PIPELINE_LOAD)))


MUTANT = Mutant(
    id="81",
    name="offsets-outlive-topics",
    title="keeps the committed offsets of a topic that is deleted",
    source="KAFKA-2000 (2015)",
    replaces=(ReplacedFunction(GroupCoordinatorShard, "_is_orphan", _is_orphan),),
    expected=("lost-position", "thrown-back"),
    faults=("topics",),
    plan=plan,
    group=GROUPS,
)
