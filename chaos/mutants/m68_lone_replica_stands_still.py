"""Plants Redpanda PR 17823: with a single replica and acks=0 or 1 nothing is committed."""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants.hunt_plans import hunt_plan, somewhat_late
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

_SOUND = PartitionRules.next_high_watermark


def next_high_watermark(self: Partition, now_ms: int) -> int:
    """Keep the high watermark, waiting for followers that do not exist."""
    return _SOUND(self, now_ms) if self.followers else self.high_watermark


def plan(seed: int) -> Plan:
    """Return a plan with one replica and acks=1."""
    alone = {"replication_factor": 1, "min_isr": 1, "acks": 1, "idempotence": False}
    return hunt_plan(seed, somewhat_late(seed, "68"), workload=alone)


MUTANT = Mutant(
    id="68",
    name="lone-replica-stands-still",
    title="never moves the high watermark of a partition without followers",
    source="Redpanda PR 17823 (2024)",
    replaces=(ReplacedFunction(PartitionRules, "next_high_watermark", next_high_watermark),),
    expected=("replicas-agree", "stuck-producer", "stuck-consumer", "not-converged", "lost-write", "unseen"),
    faults=("latency",),
    plan=plan,
)
