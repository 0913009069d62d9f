"""Plants a bug of a load, of the family of SPARK-26267: the ranges of its tasks overlap by one offset, so that a record
is loaded twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.load_plans import load_plan
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series
from squall.chaos.plans.plan import Plan
from squall.workloads.load import microbatches, ranges
from squall.workloads.load.ranges import OffsetRange

_SOUND = ranges.split


def split(whole: OffsetRange, records_per_task: int) -> Iterator[OffsetRange]:
    """Let each range but the last end one offset later."""
    for each in _SOUND(whole, records_per_task):
        yield each._replace(end=min(each.end + 1, whole.end))


def plan(seed: int) -> Plan:
    """Return a plan with many transactions, so that batches have several tasks."""
    return load_plan(seed, [], series(draw(seed, "94"), 3.0, every_s=0.1), time_s=3.5, workload={"trigger_ms": 600})


MUTANT = Mutant(
    id="94",
    name="ranges-overlap",
    title="is sound; a load cuts a partition into ranges that overlap by one offset",
    source="SPARK-26267 (2018): a plan that reads records again",
    replaces=(ReplacedFunction(microbatches, "split", split),),
    expected=("nonmonotonic-poll", "int-nonmonotonic-poll"),
    faults=(),
    plan=plan,
    group=TRANSACTIONS,
    load="load",
)
