"""Searches a log for records by timestamp (ListOffsets, mechanism R6 in docs/mechanisms.md, KIP-734).

A lookup reads batch headers to find a batch that may hold the record, and decompresses only such batches. A small batch
can decompress to many bytes. So a `TimestampLookup` runs in steps, and its caller decides for each batch whether to
search it on the event loop or in a thread. A lookup also pauses between headers, because a segment may have hundreds of
thousands of them.

Between two steps the log may grow, or lose its oldest segments. If its end is truncated, this broker is no longer the
leader, and the caller must drop the lookup.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from squall.broker.log.config import LogConfig
from squall.broker.log.reads import segment_at
from squall.broker.log.scan import LOOKUP_CHUNK, LocatedBatch, walk
from squall.broker.log.segment import Segment
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.record_walk import record_since
from squall.broker.protocol.records import CODEC_MASK, BatchHeader
from squall.broker.work import DONE

QUICK_BYTES = 32 << 10
"""Limits the bytes of an uncompressed batch that is searched on the event loop: handing it to a thread would take
longer.
"""

HEADERS_A_TURN = 2_000
BYTES_A_TURN = 64 << 10
"""Limits the bytes that a search reads on the event loop before other tasks run. 64 KiB may hold 9,000 records, and
searching them may take 20 ms.
"""


class SearchBudget:
    """Limits how many headers and bytes a search may read before other tasks run."""

    __slots__ = ("bytes", "headers")

    def __init__(self, headers: int = HEADERS_A_TURN, bytes_: int = BYTES_A_TURN) -> None:
        assert headers > 0, "the search would pause for ever"
        assert bytes_ > 0
        self.headers, self.bytes = headers, bytes_

    @property
    def is_over(self) -> bool:
        """Is True if the budget is used up."""
        return self.headers <= 0 or self.bytes <= 0


class SearchPause(Enum):
    """Is the result of a search step that ended because its `SearchBudget` was used up."""

    TURN_IS_OVER = 1


class TimestampAndOffset(NamedTuple):
    """Holds the timestamp (ms), offset and leader epoch of a record that a lookup found."""

    timestamp: int
    offset: int
    leader_epoch: int


class CandidateBatch(NamedTuple):
    """Holds a batch that may contain the record a lookup is searching for."""

    header: BatchHeader
    data: bytes
    timestamp: int
    start: int
    limit: int
    max_bytes: int

    @property
    def is_quick(self) -> bool:
        """Is True if the search is short: the batch is uncompressed and small."""
        return not self.header.attributes & CODEC_MASK and len(self.data) <= QUICK_BYTES

    def search(self, is_given_up: Callable[[], bool] = lambda: False) -> TimestampAndOffset | None:
        """Return the first record with at least the wanted timestamp, or None. Does not access the log.

        If the records cannot be read, returns the largest timestamp and the first offset in the batch header instead.
        The same holds if they decompress to more than `max_bytes`, or if `is_given_up` returns True. The search calls
        `is_given_up` from time to time, because its caller may no longer need the result.
        """
        header, data = self.header, memoryview(self.data)
        try:
            found = record_since(
                header, data, self.timestamp, self.start, self.limit, self.max_bytes, is_given_up=is_given_up
            )
        except MalformedFrame:
            # The producer's batch is stored unchanged even if it cannot be decompressed: only its header is known.
            return TimestampAndOffset(header.max_timestamp, max(self.start, header.base_offset), header.leader_epoch)
        return None if found is None else TimestampAndOffset(*found, header.leader_epoch)


class TimestampLookup:
    """Searches a log, in steps, for the first record at or after a timestamp, or for the record with the largest
    timestamp.

    The caller gets a batch from `next`, searches it and passes the result to `take`, until `next` returns None. `found`
    then holds the record, or None if there is none.
    """

    def __init__(
        self, segments: Sequence[Segment], start: int, limit: int, timestamp: int | None, config: LogConfig
    ) -> None:
        """Prepare a search in the offsets from `start` to `limit` (exclusive). It finds the first record with at least
        `timestamp` (ms), or the record with the largest timestamp if `timestamp` is None.

        `segments` is the log's own list, so it may change between two steps. `config` limits the size of decompressed
        batches.
        """
        self._segments, self._start, self._limit = segments, start, limit
        self._max_bytes = config.squall_decompressed_batch_max_bytes
        self._turn = SearchBudget()
        self._steps = self._with_max_timestamp() if timestamp is None else self._not_before(timestamp)
        self.found: TimestampAndOffset | None = None

    def next(self, turn: SearchBudget) -> CandidateBatch | SearchPause | None:
        """Return the next batch to search, a pause if the budget `turn` is used up, or None if the lookup has ended."""
        if self.found is not None:
            return None
        self._turn = turn
        return next(self._steps, None)

    def take(self, candidate: CandidateBatch, found: TimestampAndOffset | None) -> None:
        """Set the lookup's result to `found`. If `found` is None, the lookup continues after the batch `candidate`."""
        assert self.found is None
        self.found = found
        assert candidate.start <= self._start
        assert found is None or found.offset >= candidate.start
        # A batch without the record must not be searched again, however the log changes between two steps.
        self._start = max(self._start, candidate.header.next_offset)

    def run(self) -> TimestampAndOffset | None:
        """Run the whole lookup without pauses, and return the record or None."""
        while (step := self.next(SearchBudget(sys.maxsize, sys.maxsize))) is not None:
            assert isinstance(step, CandidateBatch)
            self.take(step, step.search())
        return self.found

    def _candidate(self, segment: Segment, placed: LocatedBatch, timestamp: int) -> CandidateBatch:
        assert placed.header.base_offset < self._limit
        data = segment.file.pread(placed.stop - placed.start, placed.start)
        return CandidateBatch(placed.header, data, timestamp, self._start, self._limit, self._max_bytes)

    def _walk(self, segment: Segment, offset: int) -> Iterator[LocatedBatch | SearchPause]:
        """Yield the segment's batches from the one that contains `offset` up to the limit. Before a batch that would
        exceed the budget, yield a pause.
        """
        for placed in walk(segment.file, segment.position_before(offset), segment.size, LOOKUP_CHUNK):
            while self._turn.is_over:
                yield SearchPause.TURN_IS_OVER
            self._turn.headers -= 1
            DONE.entries += 1
            if placed.header.base_offset >= self._limit:
                return
            if placed.header.base_offset + placed.header.last_offset_delta >= offset:
                yield placed

    def _not_before(self, timestamp: int) -> Iterator[CandidateBatch | SearchPause]:
        """Yield each batch whose largest timestamp is at least `timestamp`."""
        start = self._start
        for segment in self._segments[segment_at(self._segments, start) :]:
            if segment.max_timestamp < timestamp:
                continue
            from_offset = max(start, segment.base_offset + segment.time_index.offset_before(timestamp))
            for step in self._walk(segment, from_offset):
                if isinstance(step, SearchPause):
                    yield step
                # Compare the largest timestamp: a batch that begins too early may end late enough (Redpanda 6604).
                elif step.header.max_timestamp >= timestamp:
                    yield self._candidate(segment, step, timestamp)

    def _with_max_timestamp(self) -> Iterator[CandidateBatch | SearchPause]:
        """Yield the first batch with the largest timestamp of all."""
        start, limit = self._start, self._limit
        best: tuple[Segment, LocatedBatch] | None = None
        largest = -1
        for segment in self._segments[segment_at(self._segments, start) :]:
            if segment.max_timestamp <= largest:
                continue
            whole = start <= segment.max_timestamp_offset and segment.next_offset <= limit
            # If the segment's largest timestamp may be outside of [start, limit), check all batches in it.
            for step in self._walk(segment, segment.max_timestamp_offset if whole else start):
                if isinstance(step, SearchPause):
                    yield step
                    continue
                if step.header.max_timestamp > largest:
                    best, largest = (segment, step), step.header.max_timestamp
                if whole:
                    break
        if best is not None:
            yield self._candidate(*best, largest)
