"""As before KIP-101, a follower cuts its log at its own high watermark whenever its leader changes."""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants.hunt_plans import hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def first_truncation(self: Partition, latest_epoch: int | None) -> int | None:
    """To the high watermark, though that is behind what this replica has helped to commit."""
    return self.high_watermark


def plan(seed: int) -> Plan:
    """Leaders die in quick succession while followers know the high watermark late."""
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
