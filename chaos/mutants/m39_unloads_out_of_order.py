"""Plants KAFKA-10614 and KAFKA-18137: a coordinator resigns, is elected again, and loads its groups. Only then is the
unload of its resignation carried out, which removes the groups that were just loaded.

Kafka ran loads and unloads in the order in which threads took them. After such an unload the broker served the
partition without its groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.shard import GroupCoordinatorShard
from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator
from squall.chaos.mutants.group_plans import GROUP, group_plan
from squall.chaos.mutants.hunt_plans import REBALANCING, draw, fault
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

if TYPE_CHECKING:
    from squall.broker.replicas.hosted_partition import HostedPartition

LATE_S = 3.0


def role_changed(self: GroupCoordinator, h: HostedPartition) -> None:
    """Do what the correct function does; but once a broker has resigned, remove its groups again LATE_S seconds later,
    whatever their epoch is.
    """
    if h.state.index in self.shards and not h.state.is_leader:
        assert self._start_soon is not None
        self._start_soon(_unload_late, self, h.state.index)
    _SOUND(self, h)


async def _unload_late(self: GroupCoordinator, index: int) -> None:
    await self._env.sleep(LATE_S)
    shard = self.shards.get(index)
    if shard is not None:
        shard.machine = GroupCoordinatorShard(self._settings, self.topics)


_SOUND = GroupCoordinator.role_changed


def plan(seed: int) -> Plan:
    """Return a plan in which the coordinator's broker dies twice. After the first time its successor is elected, and
    resigns when the broker is back. After the second time the successor is elected again.
    """
    rng = draw(seed, "39")
    first_s = rng.uniform(1.5, 2.0)
    again_s = first_s + rng.uniform(3.2, 3.8)
    faults = [fault(first_s, 1.0, "kill", GROUP), fault(again_s, 3.0, "kill", GROUP)]
    return group_plan(seed, faults, [], time_s=again_s + 4.0, settings=REBALANCING)


MUTANT = Mutant(
    id="39",
    name="unloads-out-of-order",
    title="removes the groups of a partition that it lost and leads again, after it has loaded them",
    source="KAFKA-10614, KAFKA-18137",
    replaces=(ReplacedFunction(GroupCoordinator, "role_changed", role_changed),),
    expected=("lost-position", "dual-ownership", "commit-ahead"),
    faults=("kill",),
    plan=plan,
    group=GROUPS,
)
