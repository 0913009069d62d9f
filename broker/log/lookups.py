"""Records looked for by their timestamps (ListOffsets, R6, KIP-734).

Headers lead to the batch that may hold the record; then that batch is unpacked, as far as needed. A small batch can
unpack to much, so a `Lookup` goes in steps: whoever asks decides where a batch is searched, on the event loop or off
it. Between two steps the log may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.log.config import LogConfig
from broker.log.reads import segment_at
from broker.log.segment import Segment
from broker.protocol.errors import MalformedFrame
from broker.protocol.record_walk import record_since
from broker.protocol.records import CODEC_MASK, BatchHeader

QUICK_BYTES = 32 << 10
"""A batch up to this size that is not compressed is searched in less time than handing it to a thread takes."""


class Found(NamedTuple):
    """A record found by its timestamp (ms)."""

    timestamp: int
    offset: int
    leader_epoch: int


class Candidate(NamedTuple):
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

    def search(self) -> Found | None:
        """The first record that is not earlier than the timestamp; the batch itself where it cannot be read, or unpacks
        to more than squall.decompressed.batch.max.bytes. Touches nothing of the log.
        """
        header = self.header
        try:
            found = record_since(header, memoryview(self.data), self.timestamp, self.start, self.limit, self.max_bytes)
        except MalformedFrame:
            # What the producer packed wrongly is stored as it came: the batch's own bounds are all that is known.
            return Found(header.max_timestamp, max(self.start, header.base_offset), header.leader_epoch)
        return None if found is None else Found(*found, header.leader_epoch)


class Lookup:
    """One search. Ask `next` for a batch, search it, and give what came of it to `take`, until `next` has no more."""

    def __init__(
        self, segments: Sequence[Segment], start: int, limit: int, timestamp: int | None, config: LogConfig
    ) -> None:
        """`segments`: the log's own list, which may change between steps. `timestamp`: None asks for the largest."""
        self._segments, self._start, self._limit, self._timestamp = segments, start, limit, timestamp
        self._max_bytes = config.squall_decompressed_batch_max_bytes
        self._over = False
        self.found: Found | None = None

    def next(self) -> Candidate | None:
        """The next batch to be searched; None where the search is over."""
        if self._over or self.found is not None:
            return None
        if self._timestamp is None:
            self._over = True
            return self._with_max_timestamp()
        return self._not_before(self._timestamp)

    def take(self, candidate: Candidate, found: Found | None) -> None:
        """What the search of a batch found."""
        self.found = found
        self._start = max(self._start, candidate.header.next_offset)

    def run(self) -> Found | None:
        """Search here and now, whatever it costs."""
        while (candidate := self.next()) is not None:
            self.take(candidate, candidate.search())
        return self.found

    def _candidate(self, segment: Segment, header: BatchHeader, position: int, stop: int, timestamp: int) -> Candidate:
        data = segment.file.pread(stop - position, position)
        return Candidate(header, data, timestamp, self._start, self._limit, self._max_bytes)

    def _not_before(self, timestamp: int) -> Candidate | None:
        """The first batch that says that it has a record so late."""
        segments, start = self._segments, self._start
        for segment in segments[segment_at(segments, start) :]:
            if segment.max_timestamp < timestamp:
                continue
            from_offset = max(start, segment.base_offset + segment.time_index.offset_before(timestamp))
            for header, position, stop in segment.walk_from(from_offset):
                if header.base_offset >= self._limit:
                    return None
                if header.max_timestamp >= timestamp:
                    return self._candidate(segment, header, position, stop, timestamp)
        return None

    def _with_max_timestamp(self) -> Candidate | None:
        """The first batch with the largest timestamp of all."""
        segments, start, limit = self._segments, self._start, self._limit
        best: tuple[Segment, BatchHeader, int, int] | None = None
        for segment in segments[segment_at(segments, start) :]:
            if segment.max_timestamp <= (-1 if best is None else best[1].max_timestamp):
                continue
            whole = start <= segment.max_timestamp_offset and segment.next_offset <= limit
            # Where the largest one may not be among those asked for, all are looked at.
            for header, position, stop in segment.walk_from(segment.max_timestamp_offset if whole else start):
                if header.base_offset >= limit:
                    break
                if header.max_timestamp > (-1 if best is None else best[1].max_timestamp):
                    best = segment, header, position, stop
                if whole:
                    break
        return None if best is None else self._candidate(*best, best[1].max_timestamp)
