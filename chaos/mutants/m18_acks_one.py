"""Plants an unsafe setting: acks=1. The plan claims that this is safe (expect="safe"), so every lost record counts as a
failure.
"""

from __future__ import annotations

from squall.chaos.mutants.hunt_plans import hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant
from squall.chaos.plans.plan import Plan


def plan(seed: int) -> Plan:
    """Return a plan in which leaders die."""
    workload = {"acks": 1, "idempotence": False, "max_in_flight": 1}
    return hunt_plan(seed, killings_behind(seed, "18", rounds=3, most_ms=40), workload=workload, expect="safe")


MUTANT = Mutant(
    id="18",
    name="acks-one",
    title="is configured with acks=1, and called safe",
    source="acks=1",
    replaces=(),
    expected=("lost-write", "unseen"),
    faults=("kill", "latency"),
    plan=plan,
)
