"""Plants KAFKA-4362: a broker that has lost a partition of __consumer_offsets still acts as the coordinator of its
groups.

Members that had found this broker before still got successful responses from it. Members that found the new coordinator
formed a second group of the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.replicas.coordinators import group_coordinator
from squall.broker.replicas.coordinators.coordinator_log import needs_loading as _sound
from squall.chaos.mutants.group_plans import BYTES, GROUP, SEND, group_plan
from squall.chaos.mutants.hunt_plans import REBALANCING, draw, fault
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.replicas.coordinators.coordinator_log import L
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.replica_manager import ReplicaManager


def needs_loading(
    replicas: ReplicaManager, h: HostedPartition, shards: dict[int, L], unload: Callable[[int, L], None]
) -> bool:
    """Return False at once if this broker does not lead the partition `h`. The correct function would first unload the
    groups that this broker has loaded from the partition.
    """
    return h.state.is_leader and _sound(replicas, h, shards, unload)


def plan(seed: int) -> Plan:
    """Return a plan in which the coordinator dies and comes back, so that its successor resigns. One member has nothing
    to commit, so that it does not notice that the coordinator has changed.
    """
    rng = draw(seed, "40")
    down = fault(rng.uniform(1.5, 2.5), rng.uniform(0.8, 1.2), "kill", GROUP)
    early = [[0.3, 0, SEND, 1, BYTES]]
    return group_plan(seed, [down], early, time_s=10.0, settings=REBALANCING, workload={"partitions": 2}, to=(0,))


MUTANT = Mutant(
    id="40",
    name="not-unloaded",
    title="goes on as the coordinator of groups whose partition another broker leads",
    source="KAFKA-4362",
    replaces=(ReplacedFunction(group_coordinator, "needs_loading", needs_loading),),
    expected=("dual-ownership",),
    faults=("kill",),
    plan=plan,
    group=GROUPS,
)
