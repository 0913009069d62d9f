"""Plants Redpanda #15201: if the log is truncated during a flush, the end of the flush marks records as durable that
were appended after the truncation.
"""

from __future__ import annotations

from squall.broker.log.durability import DurabilityTracker, FlushJob
from squall.chaos.mutants.hunt_plans import REBALANCING, draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

_SOUND = DurabilityTracker.done


def done(self: DurabilityTracker, job: FlushJob, generation: int, wall_ms: int) -> None:
    """Record the flush as if nothing had been truncated meanwhile."""
    _SOUND(self, job, job.generation, wall_ms)


def plan(seed: int) -> Plan:
    """Return a plan in which disks are slow to sync while leaders are cut off, truncate, and lose their power."""
    rng = draw(seed, "65")
    at_s, faults = 0.4, []
    slow = {"how": "slow", "op": "fsync", "delay_ms": rng.choice((100, 300))}
    for _ in range(3):
        length_s, node = rng.uniform(0.9, 1.4), f"node:{rng.randint(1, 3)}"
        faults.append(fault(at_s, length_s + 0.4, "disk", node, **slow))
        faults.append(fault(at_s, length_s, "partition", node, shape="isolate", manner="drop"))
        faults.append(fault(at_s + length_s + rng.uniform(0.05, 0.4), 0.8, "power_loss", node))
        at_s += length_s + 3.0
    load = {"rate": 200, "topic_settings": {"flush.messages": "5"}}
    return hunt_plan(seed, faults, settings=REBALANCING, workload=load)


MUTANT = Mutant(
    id="65",
    name="flush-of-what-was-cut",
    title="counts a flush for records that came after the truncation of what it synced",
    source="Redpanda #15201, PR 16105 (2024)",
    replaces=(ReplacedFunction(DurabilityTracker, "done", done),),
    expected=("lost-write", "unseen", "corrupt"),
    faults=("disk", "partition", "power_loss"),
    plan=plan,
    masked="one replica counts as durable what is not: every other copy of it would have to go at the same time",
)
