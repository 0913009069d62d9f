"""Plants the bug before KIP-101: a follower truncates its log to its own high watermark whenever its leader changes."""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants.hunt_plans import hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def first_truncation(self: Partition, latest_epoch: int | None) -> int | None:
    """Return the high watermark, though this replica may have helped to commit records above it."""
    return self.high_watermark


def plan(seed: int) -> Plan:
    """Return a plan in which leaders die in quick succession while followers learn the high watermark late."""
    return hunt_plan(seed, killings_behind(seed, "1"))


MUTANT = Mutant(
    id="1",
    name="truncate-to-high-watermark",
    title="truncates a new follower's log to its high watermark",
    source="KAFKA-1211, KIP-101",
    replaces=(ReplacedFunction(PartitionRules, "first_truncation", first_truncation),),
    expected=("truncation-keeps-committed", "strong-isr", "lost-write", "unseen", "inconsistent-offset"),
    faults=("kill", "latency"),
    plan=plan,
)
