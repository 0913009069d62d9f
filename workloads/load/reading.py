"""Reads one range of offsets from the bytes of Fetch responses (mechanism P8 in docs/mechanisms.md). The code is pure.

A range that was planned below the high watermark (for read_committed: below the last stable offset) has the same
records whenever it is read, and whichever leader answers. Offsets without a record for the reader are counted by their
reason; offsets that are gone without such a reason are an error, unless the load allows gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from squall.broker.protocol.compression import NONE, decompress
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import HEADER_SIZE, BatchHeader, Record, batches, check_crc, decode_batch
from squall.workloads.client.fetched import READ_COMMITTED, AbortedTransactionFilter
from squall.workloads.load.ranges import OffsetRange


class LoadError(Exception):
    """Says why a range cannot be read. The message names the partition and the offsets."""


class CorruptBatch(LoadError):
    """Reports a batch with a wrong CRC, or one that cannot be decoded."""


class OffsetsGone(LoadError):
    """Reports offsets of a range that the partition does not have any more."""


class GoneOffsets(NamedTuple):
    """Describes offsets that an unclean election took away from a partition, although they were committed."""

    place: tuple[str, int]
    first: int
    end: int
    """Is the offset behind the last one that is gone."""
    leader_epoch: int
    epoch: int
    """Is the leader epoch in which a leader named `end` as readable. The leader of `leader_epoch` has the log of this
    epoch up to `first` only, or up to an offset before it.
    """

    def __str__(self) -> str:
        log = f"the log of epoch {self.epoch}" if self.epoch >= 0 else "the log"
        leader = f"the leader of epoch {self.leader_epoch}" if self.leader_epoch >= 0 else "the leader"
        where = f"{self.place[0]}-{self.place[1]}"
        return f"{where}: offsets {self.first} to {self.end - 1} are gone: {leader} does not have them in {log}"


class TopicRemade(LoadError):
    """Reports that a topic was deleted and made anew since the range was planned: the new topic has another id."""


class NoProgress(LoadError):
    """Reports that no broker has served a range for as long as the load was to wait."""


class ReadBatch(NamedTuple):
    """Holds one batch with records that lie in the range and that the reader sees. It is decompressed and decoded when
    it is asked for them, so that a response holds no more memory than its bytes.
    """

    header: BatchHeader
    batch: memoryview
    """Holds the bytes of the batch, with its header."""
    place: str
    """Names the batch in errors."""
    first: int
    """Is the first offset that the reader sees."""
    end: int
    """Is the offset behind the last one that the reader sees."""

    @property
    def records(self) -> list[Record]:
        """Decodes the records. Raises CorruptBatch if that cannot be done."""
        try:
            found = decode_batch(self.header, self.batch)
        except MalformedFrame as problem:
            raise CorruptBatch(f"{self.place}: {problem}") from problem
        return [record for record in found if self.first <= record.offset < self.end] if self.is_cut else found

    @property
    def body(self) -> bytes:
        """Decompresses the bytes of all records. Raises CorruptBatch if that cannot be done."""
        packed = self.batch[HEADER_SIZE:]
        try:
            return packed.tobytes() if self.header.codec == NONE else decompress(self.header.codec, packed)
        except MalformedFrame as problem:
            raise CorruptBatch(f"{self.place}: {problem}") from problem

    @property
    def is_cut(self) -> bool:
        """Is True if the batch has records before or behind those that the reader sees."""
        return self.header.base_offset < self.first or self.header.next_offset > self.end


class SkippedOffsets(NamedTuple):
    """Counts the offsets of a range that have no record for the reader."""

    control: int = 0
    """Counts offsets of transaction markers and other control records."""
    aborted: int = 0
    """Counts offsets of records in aborted transactions, which read_committed hides."""
    compacted: int = 0
    """Counts offsets that compaction has removed."""
    lost: tuple[tuple[int, int], ...] = ()
    """Lists spans of offsets (first, end) that are gone, for a load that allows gaps."""


class RangeReader:
    """Reads one range: pass the bytes of each Fetch response to `take`, in order, until `done`."""

    def __init__(self, wanted: OffsetRange, isolation: int = 0, *, allow_gaps: bool = False) -> None:
        """Begin at the start of `wanted`. `isolation`: 0 read_uncommitted, 1 read_committed."""
        self.wanted, self._isolation, self.allow_gaps = wanted, isolation, allow_gaps
        self.position = wanted.start
        """Is the next offset to fetch."""
        self.skipped = SkippedOffsets()

    @property
    def done(self) -> bool:
        """Is True if the range has been read to its end."""
        return self.position >= self.wanted.end

    def take(self, view: memoryview, aborted: Sequence[tuple[int, int]] | None) -> list[ReadBatch]:
        """Return the batches with records of the range in `view`, the bytes of a Fetch response from `position` on.
        `aborted` lists (producer id, first offset) of aborted transactions, as the broker reported them.

        Raises CorruptBatch, and OffsetsGone for a gap that nothing explains.
        """
        hidden = AbortedTransactionFilter(aborted) if self._isolation == READ_COMMITTED and aborted else None
        found: list[ReadBatch] = []
        try:
            for header, start, end in batches(view):
                if self.done:
                    break
                if not check_crc(view, start, end):
                    crc = f"its CRC-32C is not {header.crc & 0xFFFFFFFF:#010x}, which its header has"
                    raise CorruptBatch(f"{self._place(header.base_offset)}: {crc}")
                batch = view[start:end]
                # The filter follows the markers, so it sees each batch, also those before the range.
                visible = hidden is None or header.is_control or hidden.visible(header, batch)
                if hidden is not None and header.is_control:
                    hidden.visible(header, batch)
                if header.next_offset <= self.position:
                    continue
                self._take_batch(header, batch, found, visible=visible)
        except MalformedFrame as problem:
            raise CorruptBatch(f"{self._place(self.position)}: {problem}") from problem
        return found

    def skip_to(self, offset: int, why: str) -> None:
        """Continue at `offset`, because what is before it is gone (`why`). Raises OffsetsGone unless the load allows
        gaps.
        """
        end = min(offset, self.wanted.end)
        if end <= self.position:
            return
        if not self.allow_gaps:
            span = f"offsets {self.position} to {end - 1}"
            raise OffsetsGone(f"{self.wanted.topic}-{self.wanted.partition}: {span} are gone: {why}")
        lost = self.skipped.lost
        # One span for neighbours, however many answers reported them.
        if lost and lost[-1][1] == self.position:
            lost = (*lost[:-1], (lost[-1][0], end))
        else:
            lost = (*lost, (self.position, end))
        self.skipped = self.skipped._replace(lost=lost)
        self.position = end

    def _take_batch(self, header: BatchHeader, batch: memoryview, found: list[ReadBatch], *, visible: bool) -> None:
        if header.base_offset > self.position:
            self._pass_hole(header.base_offset)
        if self.done:
            return
        first, end = self.position, min(header.next_offset, self.wanted.end)
        self.position = end
        skipped = self.skipped
        if header.is_control:
            self.skipped = skipped._replace(control=skipped.control + end - first)
            return
        if not visible:
            self.skipped = skipped._replace(aborted=skipped.aborted + end - first)
            return
        read = ReadBatch(header, batch, self._place(header.base_offset), first, end)
        lacking = header.last_offset_delta + 1 - header.record_count
        if not 0 <= lacking <= header.last_offset_delta + 1:
            raise CorruptBatch(f"{read.place}: {header.record_count} records at {header.last_offset_delta + 1} offsets")
        if lacking and read.is_cut:
            lacking = end - first - len(read.records)
        if lacking:
            self.skipped = skipped._replace(compacted=skipped.compacted + lacking)
        if lacking < end - first:
            found.append(read)

    def _pass_hole(self, offset: int) -> None:
        """Pass the offsets before `offset`, at which no batch begins or continues."""
        end = min(offset, self.wanted.end)
        if self.wanted.compacted:
            self.skipped = self.skipped._replace(compacted=self.skipped.compacted + end - self.position)
            self.position = end
        else:
            self.skip_to(end, f"the next batch of the log begins at offset {offset}")

    def _place(self, offset: int) -> str:
        return f"{self.wanted.topic}-{self.wanted.partition}, batch at offset {offset}"
