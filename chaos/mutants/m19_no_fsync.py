"""Plants an unsafe setting: records are acknowledged before an fsync. The plan, in which all nodes lose their power at
once, claims that this is safe (expect="safe"). So every lost record counts as a failure.
"""

from __future__ import annotations

from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant
from squall.chaos.plans.plan import Plan


def plan(seed: int) -> Plan:
    """Return a plan in which all nodes lose their power at once."""
    rng = draw(seed, "19")
    faults = [fault(at_s + rng.random(), 0.8, "power_loss", "all") for at_s in (0.5, 4.0)]
    return hunt_plan(seed, faults, expect="safe")


MUTANT = Mutant(
    id="19",
    name="no-fsync",
    title="is configured without fsync, and called safe where all nodes lose power",
    source="log.flush.interval.messages unset",
    replaces=(),
    expected=("lost-write", "unseen"),
    faults=("power_loss",),
    plan=plan,
)
