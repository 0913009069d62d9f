"""Plants kafka-node #298, a bug of a client: the batches of a Fetch response are unpacked at the same time, and those
that are ready first are returned first.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.broker.protocol.records import batches
from squall.chaos.mutants.hunt_plans import draw, hunt_plan, slow_links
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan
from squall.workloads.client import consumer, fetched
from squall.workloads.client.fetched import ReadRecords

_SOUND = fetched.read_records


def read_records(
    view: memoryview | None, position: int, aborted: Sequence[tuple[int, int]] | None, isolation: int
) -> ReadRecords:
    """Return the records of small batches before those of large batches."""
    read = _SOUND(view, position, aborted, isolation)
    if view is None or read.damage:
        return read
    size_at = {}
    for header, start, end in batches(view):
        size_at.update(dict.fromkeys(range(header.base_offset, header.next_offset), end - start))
    return read._replace(records=sorted(read.records, key=lambda record: size_at[record.offset]))


def plan(seed: int) -> Plan:
    """Return a plan in which followers acknowledge late, so that one Fetch response has several batches."""
    rng = draw(seed, "86")
    return hunt_plan(seed, [slow_links(rng, rng.uniform(0.1, 0.5), 2.0)], workload={"rate": 300, "partitions": 1})


MUTANT = Mutant(
    id="86",
    name="batches-unpacked-out-of-order",
    title="is sound; its client returns the batches of an answer in the order in which it has unpacked them",
    source="kafka-node #298 (2016)",
    replaces=(ReplacedFunction(consumer, "read_records", read_records),),
    expected=("int-nonmonotonic-poll",),
    faults=("latency",),
    plan=plan,
)
