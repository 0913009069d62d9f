"""Plants Redpanda #4900 (2022): deleting a group left its offsets in the log.

The group was gone as long as its coordinator ran. The next coordinator, which read the log, returned deleted offsets to
its members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.shard import GroupCoordinatorShard
from squall.broker.coordinators.groups.values import AppendRecords, DeleteGroup, GroupResponse, SendResponse
from squall.chaos.mutants.group_plans import DELETE, GROUP, act, group_plan
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.values import ClockReading, Effect, Request, Token


def submit(self: GroupCoordinatorShard, request: Request, token: Token, now: ClockReading) -> list[Effect]:
    """Delete groups in memory only."""
    effects = _SOUND(self, request, token, now)
    if not isinstance(request, DeleteGroup) or not any(isinstance(effect, AppendRecords) for effect in effects):
        return effects
    ledger, group_id = self.ledger, request.group_id
    for known in (ledger.offsets, ledger.groups, ledger.consumers, self.groups):
        known.pop(group_id, None)
    return [SendResponse(token, GroupResponse())]


_SOUND = GroupCoordinatorShard.submit


def plan(seed: int) -> Plan:
    """Return a plan in which all members leave, and their group is deleted. The coordinator dies before they come
    again.
    """
    rng = draw(seed, "51")
    at_s = rng.uniform(2.0, 2.5)
    down = fault(at_s + rng.uniform(1.0, 1.3), rng.uniform(1.0, 1.5), "kill", GROUP)
    return group_plan(seed, [down], [act(at_s, 0, DELETE, 3.0)], time_s=8.0)


MUTANT = Mutant(
    id="51",
    name="offsets-of-deleted-groups",
    title="leaves the offsets of a deleted group in the log",
    source="Redpanda #4900 (2022)",
    replaces=(ReplacedFunction(GroupCoordinatorShard, "submit", submit),),
    expected=("lost-position",),
    faults=("kill",),
    plan=plan,
    group=GROUPS,
)
