"""Plants the bug of KIP-497: a leader stops waiting for replicas that it wants to remove from the ISR, before the
controller has agreed.
"""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def maximal_of(self: Partition, committed: tuple[int, ...], proposed: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ISR for which the leader waits: the proposed one, even if it is smaller than the committed one."""
    added = tuple(broker_id for broker_id in proposed if broker_id not in committed)
    return committed + added if added else proposed


def plan(seed: int) -> Plan:
    """Return a plan in which leaders are cut off from their peers, but not from their clients. A leader then wants to
    remove its followers from the ISR (replica.lag.time.max.ms) before its own broker session is over.
    """
    rng = draw(seed, "9")
    at_s, faults = 0.3, []
    for _ in range(3):
        length_s = rng.uniform(1.8, 2.6)
        manner = rng.choice(("hold", "drop"))
        faults.append(fault(at_s, length_s, "partition", f"node:{rng.randint(1, 3)}", shape="isolate", manner=manner))
        at_s += length_s + rng.uniform(0.8, 1.5)
    settings = {"replica.lag.time.max.ms": "300", "broker.session.timeout.ms": "900"}
    return hunt_plan(seed, faults, settings=settings, workload={"min_isr": 1})


MUTANT = Mutant(
    id="9",
    name="unconfirmed-shrink",
    title="does not wait for those about to leave the ISR before that is confirmed",
    source="KIP-497",
    replaces=(ReplacedFunction(PartitionRules, "maximal_of", maximal_of),),
    expected=(
        "weak-isr",
        "isr-superset",
        "valid-high-watermark",
        "strong-isr",
        "lost-write",
        "unseen",
        "inconsistent-offset",
    ),
    faults=("partition",),
    plan=plan,
)
