"""Plants a bug against KIP-848 (KAFKA-16147): a partition is assigned to a member before its owner has released it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.consumer.reconciliation import Reconciliation
from squall.chaos.mutants.group_plans import LEAVE, act, group_plan
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan
from squall.workloads.group_brokers import sessions_of

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.consumer.members import Place

SESSION_MS = 1500


def may_get(self: Reconciliation, place: Place) -> bool:
    """Return True, whichever member owns the partition."""
    return True


def plan(seed: int) -> Plan:
    """Return a plan in which members of a consumer group leave and come again: each time partitions move between
    members.
    """
    rng = draw(seed, "44")
    acts = [act(1.5 + 1.5 * n + rng.uniform(0.0, 0.5), n % 3, LEAVE, rng.uniform(0.3, 0.6)) for n in range(4)]
    workload = {"group_protocol": "consumer", "members": 3, "partitions": 6, "session_timeout_ms": SESSION_MS}
    return group_plan(seed, [], acts, time_s=8.0, settings=sessions_of(SESSION_MS), workload=workload)


MUTANT = Mutant(
    id="44",
    name="given-before-released",
    title="gives a partition of a consumer group to a member before the one that has it has released it",
    source="KIP-848, KAFKA-16147",
    replaces=(ReplacedFunction(Reconciliation, "may_get", may_get),),
    expected=("dual-ownership",),
    faults=(),
    plan=plan,
    group=GROUPS,
)
