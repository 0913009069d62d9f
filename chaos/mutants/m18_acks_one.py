"""A setting: acks=1, and no loss expected."""

from __future__ import annotations

from chaos.mutants.hunt_plans import draw, hunt_plan, killings, slow_links
from chaos.mutants.mutant import Mutant
from chaos.plans.plan import Plan


def plan(seed: int) -> Plan:
    """Leaders die."""
    rng = draw(seed, "18")
    kills = killings(rng, rounds=3)
    workload = {"acks": 1, "idempotence": False, "max_in_flight": 1}
    slow = slow_links(rng, 0.0, kills[-1]["at_s"], most_ms=40)
    return hunt_plan(seed, [slow, *kills], workload=workload, expect="safe")


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
