"""Plants a bug against KIP-345: a member whose group.instance.id another process has taken over is not fenced.

Kafka 2.3 and later answer FENCED_INSTANCE_ID to the former member. Here its heartbeats and commits are accepted.
"""

from __future__ import annotations

from squall.broker.coordinators.groups.rules import ClassicGroupRules
from squall.broker.coordinators.groups.values import CommitOffsets, GroupState, TxnOffsetCommit
from squall.broker.protocol.errors import ErrorCode
from squall.chaos.mutants.group_plans import TWIN, act, group_plan
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def refusal_of_commit(self: ClassicGroupRules, request: CommitOffsets | TxnOffsetCommit) -> ErrorCode:
    """Decide by the instance id alone if there is one, and ignore the member id."""
    if request.instance_id is None:
        return _SOUND(self, request)
    if request.instance_id not in self.static:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not self.is_current(request.generation):
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.REBALANCE_IN_PROGRESS if self.state == GroupState.COMPLETING else ErrorCode.NONE


_SOUND = ClassicGroupRules.refusal_of_commit


def plan(seed: int) -> Plan:
    """Return a plan in which additional members join for a while, each with the group.instance.id of a present member.
    """
    rng = draw(seed, "45")
    acts = [act(2.0 + 2.0 * n + rng.uniform(0.0, 0.8), 1 + n % 2, TWIN, rng.uniform(1.0, 1.8)) for n in range(3)]
    workload = {"members": 3, "static_members": True, "commit_every_ms": 0, "rate": 20}
    return group_plan(seed, [], acts, time_s=8.0, workload=workload)


MUTANT = Mutant(
    id="45",
    name="duplicate-instance-unfenced",
    title="takes commits of a member whose instance id another process has taken over",
    source="KIP-345",
    replaces=(ReplacedFunction(ClassicGroupRules, "refusal_of_commit", refusal_of_commit),),
    expected=("dual-ownership",),
    faults=(),
    plan=plan,
    group=GROUPS,
)
