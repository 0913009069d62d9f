"""Plants librdkafka PR 3258, a bug of a client: after an abort, a consume-transform-produce application does not go
back to its committed offsets. Its next transaction commits offsets beyond the inputs of the aborted one, which then
have no output.

The example in librdkafka went back in some of its partitions. Here it goes back in none.
"""

from __future__ import annotations

from squall.chaos.mutants.group_plans import ABORT, PIPELINE_LOAD, act, group_plan
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan
from squall.workloads.subscriber import Subscriber


def rewind(self: Subscriber) -> None:
    """Keep the positions, where the correct function goes back to the committed offsets."""


def plan(seed: int) -> Plan:
    """Return a plan in which some transactions are aborted, and others follow them closely."""
    rng = draw(seed, "91")
    acts = [act(1.0 + 0.8 * n + rng.uniform(0.0, 0.6), n % 2, ABORT) for n in range(5)]
    return group_plan(seed, [], acts, time_s=5.0, load=PIPELINE_LOAD, workload={"rate": 20})


MUTANT = Mutant(
    id="91",
    name="aborts-without-rewind",
    title="is sound; its client reads on after a transaction that it has aborted",
    source="librdkafka PR 3258 (2021)",
    replaces=(ReplacedFunction(Subscriber, "rewind", rewind),),
    expected=("eos-loss",),
    faults=(),
    plan=plan,
    group=GROUPS,
    load="pipeline",
)
