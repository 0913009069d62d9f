"""The controller applies an AlterPartition that was made from an older state of the partition."""

from __future__ import annotations

from broker.controller import isr
from broker.controller.image import PartitionImage
from chaos.mutants.hunting_plans import draw, fault, hunting_plan, lagging
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plan import Plan


def check_partition_epoch(partition: PartitionImage, partition_epoch: int) -> None:
    """No compare, only swap."""


def plan(seed: int) -> Plan:
    """ISRs shrink and grow, and AlterPartition requests come twice or late."""
    rng = draw(seed, "11")
    faults = lagging(rng, 0.3, rounds=4)
    end_s = max(f["at_s"] + f["duration_s"] for f in faults)
    how = {"act": "duplicate"} if rng.random() < 0.5 else {"act": "delay", "delay_ms": rng.choice((500, 900, 1500))}
    late = fault(0.1, end_s, "protocol", "all", api="AlterPartition", count=0, stream="there", side="peers", **how)
    return hunting_plan(seed, [late, *faults], settings={"replica.lag.time.max.ms": "300"})


MUTANT = Mutant(
    id="11",
    name="partition-epoch-ignored",
    title="applies ISR changes made from an older state of the partition",
    source="KIP-497",
    replaces=(Replaced(isr, "check_partition_epoch", check_partition_epoch),),
    expected=(
        "strong-isr",
        "valid-high-watermark",
        "isr-superset",
        "leader-completeness",
        "lost-write",
        "unseen",
        "inconsistent-offset",
    ),
    faults=("protocol", "pause", "partition"),
    plan=plan,
)
