"""Plants KAFKA-2334 (KIP-207): a new leader answers ListOffsets for `latest` with a high watermark that is behind its
predecessor's.
"""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def latest_offset_available(self: Partition) -> bool:
    """Return True at once, even before the new leader has committed a record of its own epoch."""
    return True


def plan(seed: int) -> Plan:
    """Return a plan in which leaders die one after the other. The one replica that is left does not know the latest
    high watermark. It would learn the high watermark by committing a record, which it cannot do alone. Readers ask for
    their lag meanwhile.
    """
    rng = draw(seed, "21")
    at_s, faults, last = 0.5, [], 0
    for _ in range(4):
        last = rng.choice([node for node in (1, 2, 3) if node != last])
        down_s = rng.uniform(1.6, 2.2)
        faults.append(fault(at_s, down_s, "kill", f"node:{last}"))
        at_s += down_s + rng.uniform(0.8, 1.2)
    return hunt_plan(seed, faults, workload={"replication_factor": 2, "min_isr": 2, "rate": 100})


MUTANT = Mutant(
    id="21",
    name="low-latest-offset",
    title="tells the latest offset before it has reached the start of its epoch",
    source="KAFKA-2334, KIP-207",
    replaces=(ReplacedFunction(PartitionRules, "latest_offset_available", latest_offset_available),),
    expected=("offset-regression", "nonmonotonic-poll", "poll-skip"),
    faults=("kill",),
    plan=plan,
)
