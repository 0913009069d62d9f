"""Plants Redpanda #3300 (2021): a rebalance waited for ever for members that were gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.classic import ClassicGroup
from squall.broker.coordinators.groups.values import GroupState
from squall.chaos.mutants.group_plans import CRASH, LEAVE, act, group_plan
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.values import ClockReading


def expire(self: ClassicGroup, now: ClockReading) -> None:
    """Expire no member while the group rebalances."""
    if self.state != GroupState.PREPARING or self._joining_until_ms is not None:
        _SOUND(self, now)
        return
    self._join_deadline_ms = None
    for member in self.members.values():
        member.deadline_ms = None


_SOUND = ClassicGroup.expire


def plan(seed: int) -> Plan:
    """Return a plan in which a member crashes, and another member leaves before the coordinator notices the crash."""
    rng = draw(seed, "78")
    at_s = rng.uniform(2.0, 3.0)
    acts = [act(at_s, 0, CRASH, 5.0), act(at_s + rng.uniform(0.3, 0.8), 1, LEAVE, 0.5)]
    return group_plan(seed, [], acts, time_s=5.0, workload={"members": 3})


MUTANT = Mutant(
    id="78",
    name="rebalance-waits-forever",
    title="waits for ever for members that do not join in a rebalance",
    source="Redpanda #3300 (2021)",
    replaces=(ReplacedFunction(ClassicGroup, "expire", expire),),
    expected=("stuck-group", "stuck-consumer"),
    faults=(),
    plan=plan,
    group=GROUPS,
)
