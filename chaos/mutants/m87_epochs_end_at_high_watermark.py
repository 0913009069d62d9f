"""Plants Redpanda #5435: a new leader answers OffsetForLeaderEpoch with an offset below what readers have read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants.hunt_plans import REBALANCING, hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

if TYPE_CHECKING:
    from squall.broker.replication.truncation import EpochCachePort

_SOUND = PartitionRules.end_of_epoch


def end_of_epoch(self: Partition, epochs: EpochCachePort, epoch: int) -> tuple[int, int]:
    """Return an end offset that is at most the high watermark, which a new leader learns late."""
    found, end = _SOUND(self, epochs, epoch)
    return found, min(end, self.high_watermark)


def plan(seed: int) -> Plan:
    """Return a plan in which leaders change, and readers ask the new leaders whether what they read is still there."""
    return hunt_plan(
        seed,
        killings_behind(seed, "87", rounds=4),
        settings=REBALANCING,
        workload={"readers": 3, "rate": 200},
    )


MUTANT = Mutant(
    id="87",
    name="epochs-end-at-high-watermark",
    title="tells a reader that an epoch ends at the high watermark, which a new leader does not know yet",
    source="Redpanda #5435 (2022)",
    replaces=(ReplacedFunction(PartitionRules, "end_of_epoch", end_of_epoch),),
    expected=("thrown-back",),
    faults=("kill", "latency"),
    plan=plan,
)
