"""Plants an unsafe setting: unclean elections are enabled. The plan claims that this is safe (expect="safe"), so every
lost record counts as a failure.
"""

from __future__ import annotations

from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant
from squall.chaos.plans.plan import Plan


def plan(seed: int) -> Plan:
    """Return a plan in which followers fall behind and leave the ISR; then their leader dies, and one of them leads."""
    rng = draw(seed, "17")
    at_s, faults = 0.4, []
    for _ in range(3):
        leader = rng.randint(1, 3)
        cut_s = rng.uniform(1.6, 2.2)
        faults.append(fault(at_s, cut_s, "pause", f"node:{leader % 3 + 1}"))
        faults.append(fault(at_s + cut_s - 0.2, rng.uniform(1.2, 1.8), "kill", f"node:{leader}"))
        at_s += cut_s + 2.5
    return hunt_plan(
        seed,
        faults,
        settings={"unclean.leader.election.enable": "true"},
        workload={"replication_factor": 2, "min_isr": 1},
        expect="safe",
    )


MUTANT = Mutant(
    id="17",
    name="unclean-election",
    title="is configured with unclean elections, and called safe",
    source="unclean.leader.election.enable=true",
    replaces=(),
    expected=("lost-write", "unseen", "wrong-offset", "offset-regression"),
    faults=("pause", "kill"),
    plan=plan,
)
