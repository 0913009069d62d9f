"""KAFKA-15583, KIP-966: the high watermark moves while the ISR is smaller than min.insync.replicas."""

from __future__ import annotations

from broker.replication import Partition
from broker.replication.rules import Rules
from chaos.mutants.hunt_plans import ELIGIBLE, draw, fault, hunt_plan
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plans.plan import Plan


def is_high_watermark_frozen(self: Partition) -> bool:
    """The last replica standing commits what it has."""
    return False


def plan(seed: int) -> Plan:
    """Both followers are held until the leader is alone; then the leader loses its power."""
    rng = draw(seed, "15")
    at_s, faults = 0.4, []
    for _ in range(2):
        first, second, leader = rng.sample((1, 2, 3), 3)
        length_s = rng.uniform(1.6, 2.2)
        faults.append(fault(at_s, length_s, "pause", f"node:{first}"))
        faults.append(fault(at_s + rng.uniform(0.7, 1.0), length_s, "pause", f"node:{second}"))
        at_s += 2 * length_s + 0.5
        faults.append(fault(at_s - length_s * rng.uniform(0.4, 0.7), 0.8, "power_loss", f"node:{leader}"))
        at_s += 1.5
    return hunt_plan(seed, faults, settings=ELIGIBLE)


def last_of_five(seed: int, mutant: str) -> Plan:
    """As above, with a quorum that outlives the two followers, so that the leader is alone in its ISR indeed.

    That the only replica in sync loses its power permits losses in general. With eligible leader replicas a sound
    broker has none here: so the plan is held to none.
    """
    rng = draw(seed, f"{mutant}: seen")
    at_s, faults = 0.5, []
    for _ in range(2):
        first, second, leader = rng.sample((1, 2, 3, 4, 5), 3)
        faults.append(fault(at_s, 4.0, "pause", f"node:{first}"))
        faults.append(fault(at_s + rng.uniform(0.2, 0.9), 3.6, "pause", f"node:{second}"))
        faults.append(fault(at_s + rng.uniform(2.0, 2.8), 0.8, "power_loss", f"node:{leader}"))
        at_s += 6.0
    load = {"partitions": 40, "rate": 400, "readers": 2}
    return hunt_plan(seed, faults, nodes=5, settings=ELIGIBLE, workload=load, expect="safe")


def seen_plan(seed: int) -> Plan:
    """Five brokers, and partitions of any three of them."""
    return last_of_five(seed, "15")


MUTANT = Mutant(
    id="15",
    name="commits-below-min-isr",
    title="moves the high watermark while the ISR is below its minimum",
    source="KAFKA-15583, KIP-966",
    replaces=(Replaced(Rules, "is_high_watermark_frozen", is_high_watermark_frozen),),
    expected=("strong-isr", "hw-held-by-min-isr", "unseen", "inconsistent-offset", "lost-write"),
    faults=("pause", "power_loss"),
    plan=plan,
    seen_plan=seen_plan,
)
