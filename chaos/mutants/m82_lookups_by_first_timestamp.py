"""Plants Redpanda #6604, PR 6606 (2022): a look-up by time skips each batch that begins before that time."""

from __future__ import annotations

from collections.abc import Iterator

from squall.broker.log.lookups import CandidateBatch, SearchPause, TimestampLookup
from squall.broker.log.reads import segment_at
from squall.chaos.mutants.hunt_plans import hunt_plan, somewhat_late
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def _not_before(self: TimestampLookup, timestamp: int) -> Iterator[CandidateBatch | SearchPause]:
    """Yield each batch whose first record has at least this timestamp."""
    for segment in self._segments[segment_at(self._segments, self._start) :]:
        for step in self._walk(segment, max(self._start, segment.base_offset)):
            if isinstance(step, SearchPause):
                yield step
            elif step.header.base_timestamp >= timestamp:
                yield self._candidate(segment, step, timestamp)


def plan(seed: int) -> Plan:
    """Return a plan that needs no fault. Each batch spans much time, so that many looked-up times lie inside of a
    batch.
    """
    workload = {"rate": 60, "linger_ms": 200, "readers": 2, "lookups": True}
    return hunt_plan(seed, somewhat_late(seed, "82"), workload=workload)


MUTANT = Mutant(
    id="82",
    name="lookups-by-first-timestamp",
    title="leaves out batches that begin before the time that is looked up",
    source="Redpanda #6604, PR 6606 (2022)",
    replaces=(ReplacedFunction(TimestampLookup, "_not_before", _not_before),),
    expected=("wrong-lookup",),
    faults=("latency",),
    plan=plan,
)
