"""Plants KAFKA-15583 (KIP-966): the high watermark advances while the ISR is smaller than min.insync.replicas."""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants.hunt_plans import ELIGIBLE, draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def is_high_watermark_frozen(self: Partition) -> bool:
    """Return False: the high watermark advances even if the ISR is smaller than min.insync.replicas."""
    return False


def plan(seed: int) -> Plan:
    """Return a plan in which both followers are paused until the leader is alone in the ISR; then the leader loses its
    power.
    """
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


def alone_by_a_cut(seed: int, mutant: str) -> Plan:
    """Return a plan that cuts all followers off from a leader, which dies meanwhile. mutant: the mutant's id, from
    which (with the seed) the times are drawn.

    Its followers run and are eligible (KIP-966), so that one of them is elected at once. A correct leader has committed
    nothing without them: so the plan accepts no loss.
    """
    rng = draw(seed, f"{mutant}: seen")
    at_s, faults = 0.5, []
    for _ in range(2):
        leader = rng.choice((1, 2, 3))
        faults.append(fault(at_s, 3.4, "partition", f"node:{leader}", side="replication"))
        faults.append(fault(at_s + rng.uniform(1.6, 2.2), 0.9, "kill", f"node:{leader}"))
        at_s += 5.5
    return hunt_plan(seed, faults, settings=ELIGIBLE, workload={"rate": 300, "readers": 2}, expect="safe")


def client_visible_plan(seed: int) -> Plan:
    """Return a plan in which readers get records that the next leader does not have."""
    return alone_by_a_cut(seed, "15")


MUTANT = Mutant(
    id="15",
    name="commits-below-min-isr",
    title="moves the high watermark while the ISR is below its minimum",
    source="KAFKA-15583, KIP-966",
    replaces=(ReplacedFunction(PartitionRules, "is_high_watermark_frozen", is_high_watermark_frozen),),
    expected=("strong-isr", "hw-held-by-min-isr", "unseen", "inconsistent-offset", "lost-write"),
    faults=("pause", "power_loss"),
    plan=plan,
    client_visible_plan=client_visible_plan,
)
