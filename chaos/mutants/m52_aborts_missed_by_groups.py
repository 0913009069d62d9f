"""Plants Redpanda #10669, PR 10670 (2023): when a transaction with group offsets was aborted, the abort went to the
wrong group coordinator.

Pending offsets stayed pending, and the next transaction of the same producer that committed also committed these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator
from squall.chaos.mutants.group_plans import ABORT, PIPELINE_LOAD, act, group_plan
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

if TYPE_CHECKING:
    from squall.broker.replicas.hosted_partition import HostedPartition


def transaction_ended(self: GroupCoordinator, h: HostedPartition, producer_id: int, commit: bool, at: int) -> None:
    """Handle commits only, and ignore aborts."""
    if commit:
        _SOUND(self, h, producer_id, commit, at)


_SOUND = GroupCoordinator.transaction_ended


def plan(seed: int) -> Plan:
    """Return a plan that aborts a transaction of a pipeline instance (a member that also produces) with several
    partitions. The other instances commit their transactions.
    """
    rng = draw(seed, "52")
    acts = [act(1.0 + 0.8 * n + rng.uniform(0.0, 0.6), 0, ABORT) for n in range(6)]
    return group_plan(seed, [], acts, time_s=6.0, load=PIPELINE_LOAD, workload={"instances": 1, "partitions": 4})


MUTANT = Mutant(
    id="52",
    name="aborts-missed-by-groups",
    title="leaves the offsets of an aborted transaction pending, and counts them with the next commit of its producer",
    source="Redpanda #10669, PR 10670 (2023)",
    replaces=(ReplacedFunction(GroupCoordinator, "transaction_ended", transaction_ended),),
    expected=("uncommitted-offset", "eos-loss", "stuck-group", "stuck-consumer"),
    faults=(),
    plan=plan,
    group=GROUPS,
    load="pipeline",
)
