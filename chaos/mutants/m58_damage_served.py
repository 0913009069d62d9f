"""Plants a bug of NATS 2.12: recovery does not verify checksums, and a damaged segment is served."""

from __future__ import annotations

from squall.broker.log import scan
from squall.broker.protocol.records import BatchHeader
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def is_intact(header: BatchHeader, data: memoryview) -> bool:
    """Return True if the length is right, without verifying the checksum."""
    return True


def plan(seed: int) -> Plan:
    """Return a plan in which power losses tear large batches that were not acknowledged, on the only replica, while its
    disk is slow.
    """
    rng = draw(seed, "58")
    load = {"replication_factor": 1, "min_isr": 1, "rate": 80, "min_bytes": 3000, "max_bytes": 9000}
    slow = {"how": "slow", "op": "fsync", "delay_ms": 300}
    at_s, faults = 0.3, []
    for _ in range(3):
        node = f"node:{rng.randint(1, 3)}"
        faults.append(fault(at_s, 1.0, "disk", node, **slow))
        faults.append(fault(at_s + rng.uniform(0.4, 0.9), 0.8, "power_loss", node))
        at_s += 3.0
    return hunt_plan(seed, faults, workload={**load, "topic_settings": {"flush.messages": "1"}})


MUTANT = Mutant(
    id="58",
    name="damage-served",
    title="does not look at the CRC of what it recovers, and serves it",
    source="Jepsen: NATS 2.12",
    replaces=(ReplacedFunction(scan, "is_intact", is_intact),),
    expected=("producer-state-is-a-replay", "loaded-log-is-whole", "corrupt"),
    faults=(
        "disk",
        "power_loss",
    ),
    plan=plan,
)
