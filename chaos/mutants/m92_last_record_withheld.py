"""Plants BookKeeper's LastAddConfirmed as a limit of reads: the last record is readable only once the next is written.
"""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import READ_COMMITTED, PartitionRules
from squall.chaos.mutants.hunt_plans import hunt_plan, somewhat_late
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def read_limit(self: Partition, isolation: int, first_unstable_offset: int | None) -> int:
    """Return the offset of the last replicated record, so that this record cannot be read yet."""
    high_watermark = self.high_watermark
    stable = self.last_stable_offset(first_unstable_offset) if isolation == READ_COMMITTED else high_watermark
    return max(self.log_start_offset, min(stable, high_watermark - 1))


def plan(seed: int) -> Plan:
    """Return a plan in which each batch has one record."""
    workload = {"rate": 60, "min_bytes": 900, "max_bytes": 1000, "batch_bytes": 1024, "linger_ms": 0}
    return hunt_plan(seed, somewhat_late(seed, "92"), workload=workload)


MUTANT = Mutant(
    id="92",
    name="last-record-withheld",
    title="withholds the last record of a partition from readers until there is a next one",
    source="Apache BookKeeper, protocol: an entry is readable once a later one has confirmed it",
    replaces=(ReplacedFunction(PartitionRules, "read_limit", read_limit),),
    expected=("unseen",),
    faults=("latency",),
    plan=plan,
)
