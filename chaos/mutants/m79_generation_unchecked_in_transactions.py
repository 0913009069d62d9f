"""Plants KAFKA-9365 (before 2.5) and Redpanda PR 5162 (2022): transactional offset commits are accepted from members of
an earlier generation.

By then another member has read on from the committed offset. The producer's epoch fences no member here: the other
member has its own transactional id (KIP-447).
"""

from __future__ import annotations

from squall.broker.coordinators.groups.rules import ClassicGroupRules
from squall.broker.coordinators.groups.values import CommitOffsets, TxnOffsetCommit
from squall.broker.protocol.errors import ErrorCode
from squall.chaos.mutants.group_plans import HALT, PIPELINE_LOAD, act, group_plan
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def refusal_of_commit(self: ClassicGroupRules, request: CommitOffsets | TxnOffsetCommit) -> ErrorCode:
    """Do what the correct function does, but refuse no commit of offsets in a transaction."""
    return ErrorCode.NONE if isinstance(request, TxnOffsetCommit) else _SOUND(self, request)


_SOUND = ClassicGroupRules.refusal_of_commit


def plan(seed: int) -> Plan:
    """Return a plan that pauses an instance of the workload `pipeline` inside a transaction. The pause is longer than
    the instance's session timeout.
    """
    rng = draw(seed, "79")
    acts = [act(1.5 + 3.5 * n + rng.uniform(0.0, 0.5), n, HALT, rng.uniform(2.3, 2.8)) for n in range(2)]
    workload = {"transaction_timeout_ms": 10_000}
    return group_plan(seed, [], acts, time_s=9.0, load=PIPELINE_LOAD, workload=workload)


MUTANT = Mutant(
    id="79",
    name="generation-unchecked-in-transactions",
    title="takes offsets inside a transaction from members that its group has gone on without",
    source="KAFKA-9365, Redpanda PR 5162 (2022)",
    replaces=(ReplacedFunction(ClassicGroupRules, "refusal_of_commit", refusal_of_commit),),
    expected=("eos-duplicate", "lost-position"),
    faults=(),
    plan=plan,
    group=GROUPS,
    load="pipeline",
)
