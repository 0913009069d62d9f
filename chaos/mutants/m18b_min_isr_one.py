"""Plants an unsafe setting: min.insync.replicas=1. The plan, in which one node at a time loses its power, claims that
this is safe (expect="safe"). So every lost record counts as a failure.
"""

from __future__ import annotations

from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant
from squall.chaos.plans.plan import Plan


def plan(seed: int) -> Plan:
    """Return a plan in which followers are paused until the leader is alone in the ISR; then the leader loses its
    power.
    """
    rng = draw(seed, "18b")
    at_s, faults = 0.4, []
    for _ in range(3):
        leader = rng.randint(1, 3)
        held_s = rng.uniform(1.4, 2.0)
        faults.append(fault(at_s, held_s, "pause", f"node:{leader % 3 + 1}"))
        faults.append(fault(at_s + held_s - 0.1, 0.8, "power_loss", f"node:{leader}"))
        at_s += held_s + 2.0
    return hunt_plan(seed, faults, workload={"replication_factor": 2, "min_isr": 1}, expect="safe")


MUTANT = Mutant(
    id="18b",
    name="min-isr-one",
    title="is configured with min.insync.replicas=1, and called safe",
    source="min.insync.replicas=1",
    replaces=(),
    expected=("lost-write", "unseen"),
    faults=("pause", "power_loss"),
    plan=plan,
)
