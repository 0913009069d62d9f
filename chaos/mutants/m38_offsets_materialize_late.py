"""Plants KAFKA-17507: the group coordinator answers a transaction marker before it has applied the transaction's
offsets to the group.

Since 2.0, Kafka's coordinator applied them later, in another thread. Meanwhile the producer could begin its next
transaction. The offsets of that one were then applied as well, although it could still abort.
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

LATE_S = 0.3


def transaction_ended(self: GroupCoordinator, h: HostedPartition, producer_id: int, commit: bool, at: int) -> None:
    """Commit the pending offsets later, including those that have become pending by then."""
    assert self._start_soon is not None
    self._start_soon(_later, self, h, producer_id, commit, at)


async def _later(self: GroupCoordinator, h: HostedPartition, producer_id: int, commit: bool, at: int) -> None:
    await self._env.sleep(LATE_S)
    _SOUND(self, h, producer_id, commit, at)


_SOUND = GroupCoordinator.transaction_ended


def plan(seed: int) -> Plan:
    """Return a plan in which transactions follow each other closely, and some are aborted."""
    rng = draw(seed, "38")
    acts = [act(1.0 + 0.8 * n + rng.uniform(0.0, 0.6), n % 2, ABORT) for n in range(6)]
    return group_plan(seed, [], acts, time_s=6.0, load=PIPELINE_LOAD, workload={"rate": 20})


MUTANT = Mutant(
    id="38",
    name="offsets-materialize-late",
    title="answers a marker before the offsets of its transaction count, and then counts what is pending by then",
    source="KAFKA-17507",
    replaces=(ReplacedFunction(GroupCoordinator, "transaction_ended", transaction_ended),),
    expected=("uncommitted-offset", "eos-loss", "lost-position"),
    faults=(),
    plan=plan,
    group=GROUPS,
    load="pipeline",
)
