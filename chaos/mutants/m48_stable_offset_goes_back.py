"""Plants Redpanda PR 7544: after an election the last stable offset is returned before the new leader knows it."""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import READ_COMMITTED, PartitionRules
from squall.chaos.mutants.hunt_plans import draw, killings
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series, txn_plan
from squall.chaos.plans.plan import Plan

_SOUND = PartitionRules.last_stable_offset


def last_stable_offset(self: Partition, first_unstable_offset: int | None) -> int:
    """Return the log start offset until a record of this leader's own epoch is committed."""
    if 0 < self.epoch_start_offset and self.high_watermark <= self.epoch_start_offset:
        return self.log_start_offset
    return _SOUND(self, first_unstable_offset)


def read_limit(self: Partition, isolation: int, first_unstable_offset: int | None) -> int:
    """Return the wrong last stable offset as the limit of reads."""
    return self.last_stable_offset(first_unstable_offset) if isolation == READ_COMMITTED else self.high_watermark


def plan(seed: int) -> Plan:
    """Return a plan in which leaders die. There are few transactions, and readers ask each new leader for the latest
    offset soon after its election.
    """
    rng = draw(seed, "48")
    kills = killings(rng, rounds=3)
    workload = {"producers": 1, "readers": 4, "poll_pause_ms": 0}
    return txn_plan(seed, kills, series(rng, kills[-1]["at_s"], every_s=0.8), workload=workload)


MUTANT = Mutant(
    id="48",
    name="stable-offset-goes-back",
    title="tells a last stable offset right after an election that is below what the leader before had told",
    source="Redpanda PR 7544",
    replaces=(
        ReplacedFunction(PartitionRules, "last_stable_offset", last_stable_offset),
        ReplacedFunction(PartitionRules, "read_limit", read_limit),
    ),
    expected=("offset-regression",),
    faults=("kill",),
    plan=plan,
    group=TRANSACTIONS,
)
