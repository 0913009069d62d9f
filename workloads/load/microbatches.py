"""Keeps what a load has on disk, and decides what a driver that begins must do. The code is pure.

It is a model of Spark's Structured Streaming (`MicroBatchExecution`, `FileStreamSink`). Each batch has three durable
writes: its plan, into the offset log of the checkpoint; its rows, into the sink's log, from where on readers of the
folder see them; its number, into the commit log of the checkpoint. A driver that finds a plan without a commit reads
the planned ranges again; if the sink has the batch already, the sink ignores what was read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from squall.workloads.client.cluster import Place
from squall.workloads.load.ranges import OffsetRange, split


class PlannedRange(NamedTuple):
    """Describes the range of one partition in the plan of a batch."""

    span: OffsetRange
    part: int
    """Identifies the partition in the history."""
    limit: int
    """Is the offset below which records could be read when the batch was planned: the last stable offset, or, at
    read_uncommitted, the high watermark.
    """


class PlannedBatch(NamedTuple):
    """Holds the plan of one batch, as the offset log has it."""

    number: int
    """Counts batches from 0."""
    planned_ns: int
    ranges: tuple[PlannedRange, ...]

    def tasks(self, records_per_task: int) -> Iterator[PlannedRange]:
        """Yield the range of each task, in order. A plan has the same tasks whenever it is carried out."""
        for planned in self.ranges:
            for span in split(planned.span, records_per_task):
                yield planned._replace(span=span)


class MicroBatchLog:
    """Holds what outlives the drivers of one load: the plans, and which batches the sink and the commit log have."""

    def __init__(self) -> None:
        self._plan: PlannedBatch | None = None
        self.positions: dict[Place, int] = {}
        """Maps each partition to the end of its last planned range."""
        self.in_sink = 0
        """Counts the batches whose rows are in the sink."""
        self.committed = 0
        """Counts the batches that are in the commit log."""

    @property
    def uncommitted(self) -> PlannedBatch | None:
        """Return the plan of the batch that is not in the commit log; None if every planned batch is."""
        return self._plan if self._plan is not None and self._plan.number == self.committed else None

    def begin_at(self, offsets: Mapping[Place, int]) -> None:
        """Remember the offsets at which new partitions begin."""
        self.positions |= {place: offset for place, offset in offsets.items() if place not in self.positions}

    def plan(self, ranges: Iterable[PlannedRange], now_ns: int) -> PlannedBatch:
        """Write the plan of the next batch into the offset log. Each range begins where the last one of its partition
        ended.
        """
        assert self.uncommitted is None
        planned = tuple(ranges)
        for span, _, _ in planned:
            assert self.positions[span.topic, span.partition] == span.start < span.end
            self.positions[span.topic, span.partition] = span.end
        self._plan = PlannedBatch(self.committed, now_ns, planned)
        return self._plan

    def add_to_sink(self, batch: PlannedBatch) -> bool:
        """Write a batch into the sink's log. Return False if the sink has the batch already, and ignores it."""
        if batch.number < self.in_sink:
            return False
        assert batch.number == self.in_sink
        self.in_sink += 1
        return True

    def commit(self, batch: PlannedBatch) -> None:
        """Write a batch into the commit log."""
        assert batch.number == self.committed < self.in_sink
        self.committed += 1
