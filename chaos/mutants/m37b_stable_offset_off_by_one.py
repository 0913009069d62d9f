"""Plants Redpanda #3036, found by Jepsen: the last stable offset is one record too high."""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import READ_COMMITTED, PartitionRules
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series, txn_plan
from squall.chaos.plans.plan import Plan


def last_stable_offset(self: Partition, first_unstable_offset: int | None) -> int:
    """Return an offset that includes the first record of the oldest open transaction."""
    if first_unstable_offset is None:
        return self.high_watermark
    return min(self.high_watermark, first_unstable_offset + 1)


def read_limit(self: Partition, isolation: int, first_unstable_offset: int | None) -> int:
    """Return the end of a consumer's read: with read_committed the last stable offset, which is one record too high
    here.
    """
    return self.last_stable_offset(first_unstable_offset) if isolation == READ_COMMITTED else self.high_watermark


def plan(seed: int) -> Plan:
    """Return a plan with transactions that pause, so that readers fetch while they are open; many are aborted."""
    rng = draw(seed, "37b")
    return txn_plan(seed, [], series(rng, 2.0), time_s=2.5)


MUTANT = Mutant(
    id="37b",
    name="stable-offset-off-by-one",
    title="lets readers of committed data read the first record of an open transaction",
    source="Redpanda #3036, Jepsen 2022",
    replaces=(
        ReplacedFunction(PartitionRules, "last_stable_offset", last_stable_offset),
        ReplacedFunction(PartitionRules, "read_limit", read_limit),
    ),
    expected=("dirty-read", "G1a"),
    faults=(),
    plan=plan,
    group=TRANSACTIONS,
)
