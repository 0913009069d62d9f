"""Records looked for by their timestamps (ListOffsets, R6, KIP-734).

Headers lead to the batch that may hold the record; then that batch is unpacked, as far as needed. A small batch can
unpack to much, so a `TimestampLookup` goes in steps: the caller decides if a batch is searched on the event loop or off
it. It also pauses among headers, of which a segment may have hundreds of thousands. Between two steps the log may grow,
or lose its beginning; a cut of its end ends the leadership, and whoever asks gives up then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from squall.broker.log.config import LogConfig
from squall.broker.log.reads import segment_at
from squall.broker.log.scan import LOOKUP_CHUNK, PlacedBatch, walk
from squall.broker.log.segment import Segment
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.record_walk import record_since
from squall.broker.protocol.records import CODEC_MASK, BatchHeader
from squall.broker.work import DONE

QUICK_BYTES = 32 << 10
"""A batch up to this size that is not compressed is searched in less time than handing it to a thread takes."""

HEADERS_A_TURN = 2_000
BYTES_A_TURN = 64 << 10
"""Of batches that are searched on the event loop: they may hold 9,000 records, and take 20 ms."""


class SearchBudget:
    """Limits how much a search may look at before other tasks run."""

    __slots__ = ("bytes", "headers")

    def __init__(self, headers: int = HEADERS_A_TURN, bytes_: int = BYTES_A_TURN) -> None:
        self.headers, self.bytes = headers, bytes_

    @property
    def is_over(self) -> bool:
        """True where nothing is left of it."""
        return self.headers <= 0 or self.bytes <= 0


class SearchPause(Enum):
    """A step that finds nothing."""

    TURN_IS_OVER = 1


class TimestampAndOffset(NamedTuple):
    """A record found by its timestamp (ms)."""

    timestamp: int
    offset: int
    leader_epoch: int


class CandidateBatch(NamedTuple):
    """A batch that may hold the record."""

    header: BatchHeader
    data: bytes
    timestamp: int
    start: int
    limit: int
    max_bytes: int

    @property
    def is_quick(self) -> bool:
        """True where the search is short: no unpacking, few records."""
        return not self.header.attributes & CODEC_MASK and len(self.data) <= QUICK_BYTES

    def search(self, is_given_up: Callable[[], bool] = lambda: False) -> TimestampAndOffset | None:
        """The first record that is not earlier than the timestamp; the batch itself where it cannot be read, or is not
        read to its end because that is too far. Touches nothing of the log.
        """
        header, data = self.header, memoryview(self.data)
        try:
            found = record_since(
                header, data, self.timestamp, self.start, self.limit, self.max_bytes, is_given_up=is_given_up
            )
        except MalformedFrame:
            # What the producer packed wrongly is stored as it came: the batch's own bounds are all that is known.
            return TimestampAndOffset(header.max_timestamp, max(self.start, header.base_offset), header.leader_epoch)
        return None if found is None else TimestampAndOffset(*found, header.leader_epoch)


class TimestampLookup:
    """Makes one search. Ask `next` for a batch, search it, and give the outcome to `take`, until `next` has no more."""

    def __init__(
        self, segments: Sequence[Segment], start: int, limit: int, timestamp: int | None, config: LogConfig
    ) -> None:
        """`segments`: the log's own list, which may change between steps. `timestamp`: None asks for the largest."""
        self._segments, self._start, self._limit = segments, start, limit
        self._max_bytes = config.squall_decompressed_batch_max_bytes
        self._turn = SearchBudget()
        self._steps = self._with_max_timestamp() if timestamp is None else self._not_before(timestamp)
        self.found: TimestampAndOffset | None = None

    def next(self, turn: SearchBudget) -> CandidateBatch | SearchPause | None:
        """The next batch to be searched; None where the search is over. A pause where the turn is."""
        if self.found is not None:
            return None
        self._turn = turn
        return next(self._steps, None)

    def take(self, candidate: CandidateBatch, found: TimestampAndOffset | None) -> None:
        """Note what the search of a batch found."""
        assert self.found is None
        self.found = found
        # What was searched in vain must not be searched again, whatever the log does between two steps.
        self._start = max(self._start, candidate.header.next_offset)

    def run(self) -> TimestampAndOffset | None:
        """Search here and now, whatever it costs."""
        while (step := self.next(SearchBudget(sys.maxsize, sys.maxsize))) is not None:
            assert isinstance(step, CandidateBatch)
            self.take(step, step.search())
        return self.found

    def _candidate(self, segment: Segment, placed: PlacedBatch, timestamp: int) -> CandidateBatch:
        data = segment.file.pread(placed.stop - placed.start, placed.start)
        return CandidateBatch(placed.header, data, timestamp, self._start, self._limit, self._max_bytes)

    def _walk(self, segment: Segment, offset: int) -> Iterator[PlacedBatch | SearchPause]:
        """The segment's batches from the one that `offset` is in to the limit, with a pause before each that is too
        much for the turn.
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
        """Each batch that says that it has a record so late."""
        start = self._start
        for segment in self._segments[segment_at(self._segments, start) :]:
            if segment.max_timestamp < timestamp:
                continue
            from_offset = max(start, segment.base_offset + segment.time_index.offset_before(timestamp))
            for step in self._walk(segment, from_offset):
                if isinstance(step, SearchPause):
                    yield step
                # By its largest timestamp: a batch that begins too early may end late enough (Redpanda 6604).
                elif step.header.max_timestamp >= timestamp:
                    yield self._candidate(segment, step, timestamp)

    def _with_max_timestamp(self) -> Iterator[CandidateBatch | SearchPause]:
        """The first batch with the largest timestamp of all."""
        start, limit = self._start, self._limit
        best: tuple[Segment, PlacedBatch] | None = None
        largest = -1
        for segment in self._segments[segment_at(self._segments, start) :]:
            if segment.max_timestamp <= largest:
                continue
            whole = start <= segment.max_timestamp_offset and segment.next_offset <= limit
            # Where the largest one may not be among those asked for, all are looked at.
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
