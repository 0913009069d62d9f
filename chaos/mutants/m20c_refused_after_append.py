"""Plants a bug: the broker answers NOT_ENOUGH_REPLICAS after the append, although this error means that nothing was
appended.
"""

from __future__ import annotations

from dataclasses import replace

from squall.broker.protocol.errors import ErrorCode
from squall.chaos.mutants.appending import AppendCall, Appended, around_append
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant
from squall.chaos.plans.plan import Plan

LEADER_ALONE = 1


def late(append: AppendCall) -> Appended:
    """Append first, and check the ISR afterwards."""
    if append.acks != -1 or not append.h.state.under_min_isr_before_append():
        return append.go()
    # With acks=1 the append neither checks the ISR nor waits for it.
    result, _ = replace(append, acks=LEADER_ALONE).go()
    if not result.error:
        result.refuse(int(ErrorCode.NOT_ENOUGH_REPLICAS))
    return result, None


def plan(seed: int) -> Plan:
    """Return a plan with min.insync.replicas=3 in which one of three replicas is paused. The pause is longer than the
    time for which a producer retries.
    """
    rng = draw(seed, "20c")
    held_s = rng.uniform(3.0, 4.0)
    faults = [fault(rng.uniform(0.5, 1.0), held_s, "pause", f"node:{rng.randint(1, 3)}")]
    return hunt_plan(seed, faults, workload={"min_isr": 3, "delivery_timeout_ms": 1000, "request_timeout_ms": 500})


MUTANT = Mutant(
    id="20c",
    name="refused-after-append",
    title="answers NOT_ENOUGH_REPLICAS to what it has appended",
    source="NOT_ENOUGH_REPLICAS (19): Kafka's protocol says that nothing was appended",
    replaces=(around_append(late),),
    expected=("failed-yet-read", "duplicate"),
    faults=("pause",),
    plan=plan,
)
