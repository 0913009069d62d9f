"""Plans which offsets the tasks of a load read (mechanism P8 in docs/mechanisms.md). The code is pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from squall.broker.protocol.wire import ZERO_UUID


class OffsetRange(NamedTuple):
    """Names what one task reads: the offsets from `start` up to and without `end` of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes = ZERO_UUID
    """Is the id of the topic when the range was planned; ZERO_UUID if brokers report no topic ids."""
    leader_epoch: int = -1
    """Is the leader epoch of the partition when the range was planned; -1 if it is unknown."""
    compacted: bool = False
    """Is True if the topic was compacted when the range was planned, so that offsets may lack without a loss."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}, offsets {self.start} to {self.end - 1}"


def split(whole: OffsetRange, records_per_task: int) -> Iterator[OffsetRange]:
    """Yield ranges that together are `whole`, in order and without overlap. Each has at most `records_per_task`
    offsets, and their sizes differ by one at most. Nothing is yielded for an empty range.
    """
    assert records_per_task > 0
    size = whole.end - whole.start
    tasks = -(-size // records_per_task)
    for task in range(tasks):
        yield whole._replace(
            start=whole.start + size * task // tasks,
            end=whole.start + size * (task + 1) // tasks,
        )
