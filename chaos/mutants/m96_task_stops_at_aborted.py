"""Plants a bug of a load like SPARK-25005: a task takes the offsets of an aborted transaction, which have no records
for it, for the end of its range.
"""

from __future__ import annotations

from squall.broker.protocol.records import BatchHeader
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.load_plans import load_plan
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series
from squall.chaos.plans.plan import Plan
from squall.workloads.load.reading import RangeReader, ReadBatch

_SOUND = RangeReader._take_batch


def _take_batch(
    self: RangeReader, header: BatchHeader, batch: memoryview, found: list[ReadBatch], *, visible: bool
) -> None:
    """End the range at an aborted batch."""
    _SOUND(self, header, batch, found, visible=visible)
    if not visible:
        self.position = self.wanted.end


def plan(seed: int) -> Plan:
    """Return a plan with many aborted transactions, and batches of many offsets."""
    transactions = series(draw(seed, "96"), 3.0, every_s=0.1, aborts=0.5)
    return load_plan(seed, [], transactions, time_s=3.5, workload={"trigger_ms": 600, "records_per_task": 1000})


MUTANT = Mutant(
    id="96",
    name="task-stops-at-aborted",
    title="is sound; a task of a load ends its range at the batch of an aborted transaction",
    source="SPARK-25005 (2018)",
    replaces=(ReplacedFunction(RangeReader, "_take_batch", _take_batch),),
    expected=("poll-skip", "int-poll-skip"),
    faults=(),
    plan=plan,
    group=TRANSACTIONS,
    load="load",
)
