"""Plants Redpanda #5355: after a truncation, the broker's producer state still contains the removed batches, so retries
of them are acknowledged as duplicates.
"""

from __future__ import annotations

from squall.broker.log.log import Log
from squall.chaos.mutants.hunt_plans import REBALANCING, draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

_SOUND = Log.truncate_to


def truncate_to(self: Log, offset: int) -> bool:
    """Truncate the log, but keep its producer state: a batch that was removed counts as a duplicate when it is sent
    again.
    """
    known = self.producers
    cut = _SOUND(self, offset)
    self.producers = known
    return cut


def plan(seed: int) -> Plan:
    """Return a plan that cuts off a leader with records that no other replica has; it comes back, truncates, and soon
    leads again.
    """
    rng = draw(seed, "53")
    at_s, faults = 0.4, []
    for _ in range(4):
        length_s = rng.uniform(0.9, 1.5)
        node, manner = f"node:{rng.randint(1, 3)}", rng.choice(("hold", "drop"))
        faults.append(fault(at_s, length_s, "partition", node, shape="isolate", manner=manner))
        at_s += length_s + rng.uniform(1.2, 2.0)
    load = {"rate": 200, "request_timeout_ms": 2000, "delivery_timeout_ms": 10_000}
    return hunt_plan(seed, faults, settings=REBALANCING, workload=load)


MUTANT = Mutant(
    id="53",
    name="batches-outlive-truncation",
    title="acknowledges a resent batch as known after its own copy was truncated",
    source="Redpanda #5355, PR 5356; KAFKA-14034",
    replaces=(ReplacedFunction(Log, "truncate_to", truncate_to),),
    expected=("producer-state-is-a-replay", "lost-write", "unseen", "wrong-offset", "stale-ack", "duplicate"),
    faults=("partition",),
    plan=plan,
)
