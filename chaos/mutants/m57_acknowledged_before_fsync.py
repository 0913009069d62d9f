"""Plants a bug of NATS 2.12: records are acknowledged before the fsync that the setting promises."""

from __future__ import annotations

from squall.broker.log.durability import DurabilityTracker
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def is_flush_required(self: DurabilityTracker, log_end_offset: int) -> bool:
    """Return False: acknowledge records without waiting for the flush that has begun."""
    return False


def plan(seed: int) -> Plan:
    """Return a plan in which an fsync takes long, and all nodes lose power at once, under flush.messages=1."""
    rng = draw(seed, "57")
    slow = {"how": "slow", "op": "fsync", "delay_ms": rng.choice((200, 400))}
    faults = [fault(0.3, 1.2, "disk", f"node:{node}", **slow) for node in (1, 2, 3)]
    faults.append(fault(1.0 + 0.4 * rng.random(), 0.8, "power_loss", "all"))
    return hunt_plan(seed, faults, workload={"rate": 300, "topic_settings": {"flush.messages": "1"}})


MUTANT = Mutant(
    id="57",
    name="acknowledged-before-fsync",
    title="acknowledges before the fsync that flush.messages=1 promises",
    source="Jepsen: NATS 2.12",
    replaces=(ReplacedFunction(DurabilityTracker, "is_flush_required", is_flush_required),),
    expected=("acknowledged-is-durable", "leader-completeness", "strong-isr", "lost-write", "unseen"),
    faults=("disk", "power_loss"),
    plan=plan,
)
