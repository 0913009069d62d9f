"""Plants bugs of loads (`workloads/load`): a broker is sound under each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from squall.broker.protocol.records import BatchHeader
from squall.broker.protocol.timestamps import LATEST
from squall.chaos.mutants.hunt_plans import Values, fault
from squall.chaos.mutants.mutant import load_mutant
from squall.chaos.mutants.txn_plans import SMALL, series, txn_plan
from squall.chaos.plans.plan import Plan
from squall.workloads.client.admin import list_offsets
from squall.workloads.client.cluster import Place
from squall.workloads.kill_moments import PLANNED, READING
from squall.workloads.load import microbatches, ranges
from squall.workloads.load.driver import LIST_LIMIT_S, LoadDriver, ReadableEnd
from squall.workloads.load.executor import TaskAttempt, TaskResult
from squall.workloads.load.ranges import OffsetRange
from squall.workloads.load.reading import RangeReader, ReadBatch

# The rules as they are while no mutant is planted.
SOUND_SPLIT = ranges.split
SOUND_ENDS = LoadDriver._ends
SOUND_TAKE_BATCH = RangeReader._take_batch
SOUND_RUN = TaskAttempt.run
SOUND_TAKE = TaskAttempt._take

LOADED: Mapping[str, Any] = {
    **SMALL,
    "name": "load",
    "readers": 1,
    "plain_rate": 0,
    "records_per_task": 4,
    "trigger_ms": 100,
}
"""Holds the settings of the load, at read_committed: few partitions, and small tasks."""


def load_plan(seed: int, faults: Sequence[Values], transactions: Iterable[Sequence[Any]], **plan: Any) -> Plan:
    """Return a plan of a small cluster with these faults and transactions (each made by `txn_plans.txn`)."""
    return txn_plan(seed, faults, transactions, workload={**LOADED, **plan.pop("workload", {})}, **plan)


def load_kill(at_s: float, duration_s: float, moment: str, per_minute: int) -> Values:
    """Return a fault that kills the load at this moment of its batches, so many times a minute."""
    return fault(at_s, duration_s, "load_kill", "load", moment=moment, per_minute=per_minute)


def split(whole: OffsetRange, records_per_task: int) -> Iterator[OffsetRange]:
    """Let each range but the last end one offset later."""
    for each in SOUND_SPLIT(whole, records_per_task):
        yield each._replace(end=min(each.end + 1, whole.end))


@load_mutant(
    "94",
    "is sound; a load cuts a partition into ranges that overlap by one offset",
    source="SPARK-26267 (2018): a plan that reads records again",
    replaces=[(microbatches, "split", split)],
    expected="nonmonotonic-poll int-nonmonotonic-poll",
)
def ranges_overlap(seed: int, rng: Random) -> Plan:
    """Return a plan with many transactions, so that batches have several tasks."""
    return load_plan(seed, [], series(rng, 3.0, every_s=0.1), time_s=3.5, workload={"trigger_ms": 600})


async def _ends(self: LoadDriver, places: Sequence[Place]) -> dict[Place, ReadableEnd]:
    """Return the high watermarks as the ends."""
    found = await SOUND_ENDS(self, places)
    high = await list_offsets(self._client, list(found), LATEST, isolation=0, timeout_s=LIST_LIMIT_S)
    return {place: each._replace(end=max(each.end, high[place].offset)) for place, each in found.items()}


@load_mutant(
    "95",
    "is sound; a load at read_committed plans beyond the last stable offset",
    source="KIP-98: the end for read_committed is the last stable offset",
    replaces=[(LoadDriver, "_ends", _ends)],
    expected="lso-violation",
)
def end_beyond_stable_offset(seed: int, rng: Random) -> Plan:
    """Return a plan with transactions that stay open for a while after their first records."""
    transactions = series(rng, 3.0, every_s=0.2, aborts=0.2, pauses_ms=(150, 300))
    return load_plan(seed, [], transactions, time_s=3.5)


def _take_batch(
    self: RangeReader, header: BatchHeader, batch: memoryview, found: list[ReadBatch], *, visible: bool
) -> None:
    """End the range at an aborted batch."""
    SOUND_TAKE_BATCH(self, header, batch, found, visible=visible)
    if not visible:
        self.position = self.wanted.end


@load_mutant(
    "96",
    "is sound; a task of a load ends its range at the batch of an aborted transaction",
    source="SPARK-25005 (2018)",
    replaces=[(RangeReader, "_take_batch", _take_batch)],
    expected="poll-skip int-poll-skip",
)
def task_stops_at_aborted(seed: int, rng: Random) -> Plan:
    """Return a plan with many aborted transactions, and batches of many offsets."""
    transactions = series(rng, 3.0, every_s=0.1, aborts=0.5)
    return load_plan(seed, [], transactions, time_s=3.5, workload={"trigger_ms": 600, "records_per_task": 1000})


def skip_to(self: RangeReader, offset: int, why: str) -> None:
    """Count the offsets before `offset` as those of control records."""
    end = min(offset, self.wanted.end)
    if end > self.position:
        self.skipped = self.skipped._replace(control=self.skipped.control + end - self.position)
        self.position = end


@load_mutant(
    "97",
    "is sound; a load takes offsets that are gone for those of control records",
    source="SPARK-25005 (2018): a reader has to tell offsets without records from lost ones",
    replaces=[(RangeReader, "skip_to", skip_to)],
    expected="poll-skip",
    faults="topics load_kill",
)
def gap_as_control_records(seed: int, rng: Random) -> Plan:
    """Return a plan in which records are deleted that a plan has named and no task has read: the driver dies between
    the two, again and again.
    """
    times = [1.0 + 0.7 * n + rng.uniform(0.0, 0.3) for n in range(6)]
    deletions = [fault(at_s, 0.3, "topics", "all", how="delete_records") for at_s in times]
    kills = load_kill(0.6, 5.0, PLANNED, 300)
    return load_plan(seed, [*deletions, kills], series(rng, 6.0, every_s=0.06, aborts=0.1), time_s=6.5)


REACHED = "_reached"
"""Names the attribute of the recorder that maps each range to the offset that an attempt has reached."""


async def run(self: TaskAttempt) -> TaskResult:
    """Begin at the offset that an earlier attempt has reached."""
    reached = vars(self._around.recorder).setdefault(REACHED, {})
    self._reader.position = reached.get(self.task.planned, self._reader.position)
    return await SOUND_RUN(self)


async def _take(self: TaskAttempt, found: list[ReadBatch]) -> None:
    """Remember the offset that the attempt has reached."""
    vars(self._around.recorder)[REACHED][self.task.planned] = self._reader.position
    await SOUND_TAKE(self, found)


@load_mutant(
    "98",
    "is sound; a load tries a task again from where the killed executor stood",
    source="Structured Streaming guide: a source must give the same records again",
    replaces=[(TaskAttempt, "run", run), (TaskAttempt, "_take", _take)],
    expected="poll-skip int-poll-skip",
    faults="load_kill",
)
def retries_resume(seed: int, rng: Random) -> Plan:
    """Return a plan in which executors die in the middle of ranges."""
    transactions = series(rng, 3.0, every_s=0.1, aborts=0.1)
    return load_plan(seed, [load_kill(0.5, 2.5, READING, 200)], transactions, time_s=3.5)
