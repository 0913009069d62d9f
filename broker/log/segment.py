"""Implements a segment: a file of batches, its indexes, and the positions of its newest batches in memory (mechanism L1
in docs/mechanisms.md).
"""

# A log file above 4 MB has its next 32 MB of blocks reserved at a time (`fallocate` that keeps the size), unless less
# than 1 GB is free. Ten pairs beside other work gave 0.97 of the broker's CPU at 1 KB and 0.96 at 100 B; both
# intervals hold 1. In the lab: 0.92 and 0.94.

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any

from squall.broker.env import Buffer, File, Fs
from squall.broker.log.checkpoints import parent
from squall.broker.log.config import LogConfig
from squall.broker.log.indexes import AbortedIndex, IndexFile, OffsetIndex, TimeIndex
from squall.broker.log.scan import LOOKUP_CHUNK, LocatedBatch, walk, walk_ends
from squall.broker.log.slices import FileSlice

LOG, INDEX, TIME_INDEX, ABORTED_INDEX = ".log", ".index", ".timeindex", ".txnindex"
SUFFIXES = (LOG, INDEX, TIME_INDEX, ABORTED_INDEX)
TRUNCATING = ".truncating"
"""Is the suffix of an empty marker file that exists while its segment is being truncated."""
TAIL_BATCHES = 4096
"""Gives the number of a segment's newest batches whose positions stay in memory, at 16 bytes each. Once there are more
than twice as many, the oldest `TAIL_BATCHES` are dropped.
"""
LARGEST_RELATIVE_OFFSET = 2**31 - 1
NEVER = 2**63 - 1


def file_name(offset: int, suffix: str) -> str:
    """Return the name of a segment's file as in Kafka: the base offset in 20 digits, then `suffix`."""
    return f"{offset:020d}{suffix}"


class Segment:
    """Holds the batches from `base_offset` on. Offsets are absolute; positions are bytes in the file.

    `ends` and `stops` describe the newest batches: batch i of them has the offsets ends[i] to ends[i+1] - 1 and the
    bytes stops[i] to stops[i+1] - 1. Their first elements say where the part kept in memory begins.
    """

    __slots__ = (
        "_fs",
        "_index_interval",
        "_index_limit",
        "_index_position",
        "_index_room",
        "_path",
        "aborted",
        "base_offset",
        "ends",
        "file",
        "full",
        "index",
        "indexes_durable",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "offset_limit",
        "roll_timestamp",
        "size",
        "stops",
        "time_index",
    )

    def __init__(self, fs: Fs, directory: str, base_offset: int, config: LogConfig, *, fresh: bool) -> None:
        """Create empty files if `fresh`. Otherwise open the existing files. The caller must then find the segment's end
        and timestamps, with `open_end` for example.
        """
        assert base_offset >= 0
        self._fs = fs
        self._path = f"{directory}/{file_name(base_offset, '')}"
        self._index_interval = config.index_interval_bytes
        self._index_limit = self._index_room = config.segment_index_bytes // OffsetIndex.ENTRY.size
        self._index_position = 0
        self.base_offset = base_offset
        self.file: File = fs.open(self._path + LOG, create=fresh, truncate=fresh)
        self.size = self.file.size()
        assert not fresh or self.size == 0  # else batches of an earlier file would count again
        self.next_offset = base_offset
        """Gives the offset after the segment's last batch: the smallest that the next batch may have."""
        self.offset_limit = base_offset + LARGEST_RELATIVE_OFFSET
        """Gives the highest offset that the indexes can store."""
        self.full = False
        """Is True if the offset index has reached its size limit, so that the segment must be rolled."""
        self.roll_timestamp = NEVER
        """Gives the first batch's timestamp, from which the segment's age counts; NEVER while the segment is empty."""
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        """Gives the last offset of the batch with the largest timestamp, -1 if no batch has a timestamp. If several
        batches have the largest timestamp, the first of them counts.
        """
        self.index = OffsetIndex(fs, self._path + INDEX, fresh=fresh)
        self.time_index = TimeIndex(fs, self._path + TIME_INDEX, fresh=fresh)
        if fresh and fs.exists(self._path + ABORTED_INDEX):
            fs.remove(self._path + ABORTED_INDEX)
        self.aborted = AbortedIndex(fs, self._path + ABORTED_INDEX, fresh=False)
        self.indexes_durable = False
        self.ends = array("q", [base_offset])
        self.stops = array("q", [0])

    # ------------------------------------------------------------------------------------------------- appending

    def append(self, data: Buffer) -> None:
        """Write batches after the segment's last batch. The caller then passes each to `note`, in order. If the write
        fails with OSError, the segment has the same batches as before.
        """
        if self.file.append(data) != self.size:
            # An earlier write failed half-way and left bytes at the end: remove them, and append again.
            self.file.truncate(self.size)
            if self.file.append(data) != self.size:
                raise OSError(f"{self._path}{LOG} cannot be cut back to {self.size} bytes")

    def note(self, next_offset: int, length: int, max_timestamp: int) -> None:
        """Update the segment's state and indexes after a batch of `length` bytes was appended. `next_offset` is the
        offset after the batch.
        """
        assert next_offset > self.next_offset
        assert length > 0
        position = self.size
        assert self._index_position <= position
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = next_offset - 1
        if not position:
            self.roll_timestamp = max_timestamp if max_timestamp >= 0 else NEVER
        elif position - self._index_position > self._index_interval:
            self._index_batch(next_offset - 1, position)
        self.size = stop = position + length
        self.next_offset = next_offset
        self.ends.append(next_offset)
        self.stops.append(stop)
        if len(self.ends) > 2 * TAIL_BATCHES:
            del self.ends[:TAIL_BATCHES]
            del self.stops[:TAIL_BATCHES]
            assert len(self.ends) == len(self.stops)

    def _index_batch(self, last_offset: int, position: int) -> None:
        assert last_offset >= self.base_offset
        assert last_offset <= self.offset_limit
        self.index.add(last_offset - self.base_offset, position)
        self._index_time()
        self._index_position = position
        self._index_room -= 1
        self.full = self._index_room <= 0

    def _index_time(self) -> None:
        if self.max_timestamp >= 0:
            self.time_index.add_if_later(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def become_inactive(self) -> None:
        """Finish the segment after its last append: add the largest timestamp to the time index, write out the pending
        index entries, and give back preallocated disk space.
        """
        assert len(self.ends) == len(self.stops)
        assert self.ends[-1] == self.next_offset
        assert self.stops[-1] == self.size
        # The largest timestamp may be after the last indexed batch, and lookups in closed segments use the index only.
        self._index_time()
        self.write_out()
        self.file.seal()

    def write_out(self) -> None:
        """Write the pending index entries to the page cache."""
        for entries in self._entry_files():
            entries.write_out()

    def release(self) -> None:
        """Close the index files, which are opened again when they are needed."""
        for entries in self._entry_files():
            entries.release()

    def drop_tail(self) -> None:
        """Drop the positions of the newest batches from memory, because the segment is no longer read often."""
        self.ends = array("q", [self.next_offset])
        self.stops = array("q", [self.size])

    def unsynced(self, *, indexes: bool) -> list[File]:
        """Return the files whose fsync makes the batches durable. With `indexes`, the index files are among them."""
        files = [self.file]
        if indexes:
            files += [entries.file for entries in (self.index, self.time_index)]
            if len(self.aborted):
                files.append(self.aborted.file)
        return files

    def _entry_files(self) -> tuple[IndexFile[Any], ...]:
        return self.index, self.time_index, self.aborted

    # --------------------------------------------------------------------------------------------------- finding

    def walk_from(self, offset: int) -> Iterator[LocatedBatch]:
        """Yield headers with byte ranges, from the batch that contains `offset`, or the first batch after it."""
        for placed in walk(self.file, self.position_before(offset), self.size, LOOKUP_CHUNK):
            if placed.header.base_offset + placed.header.last_offset_delta >= offset:
                yield placed

    def position_before(self, offset: int) -> int:
        """Return a position from which a scan finds `offset`. A batch begins there, or it is the segment's end. All
        batches before the position have only smaller offsets.
        """
        at = bisect_right(self.ends, offset) - 1
        if at >= 0:
            return self.stops[at]
        return self.index.batch_before(max(0, offset - self.base_offset))

    def slice(self, offset: int, limit: int, max_bytes: int, at_least_one: bool) -> FileSlice | None:
        """Return complete batches, from the one that contains `offset` up to `limit` (exclusive). The slice has at most
        `max_bytes`, but at least one batch if `at_least_one`. Return None if no batch meets these conditions.
        """
        ends = self.ends
        first = bisect_right(ends, offset) - 1
        if first < 0:
            return self._slice_cold(offset, limit, max_bytes, at_least_one)
        last = bisect_right(ends, limit, first) - 1
        if last <= first:
            return None
        stops = self.stops
        start = stops[first]
        length = stops[last] - start
        if length > max_bytes:
            last = bisect_right(stops, start + max_bytes, first, last) - 1
            if last <= first:
                if not at_least_one:
                    return None
                last = first + 1
            length = stops[last] - start
        assert length > 0
        assert start + length <= self.size
        return FileSlice(self.file, start, length)

    def _slice_cold(self, offset: int, limit: int, max_bytes: int, at_least_one: bool) -> FileSlice | None:
        """Do the work of `slice` for batches whose positions are not in memory: find them with the offset index and the
        batch headers.
        """
        ends = walk_ends(self.file, self.position_before(offset), self.size, LOOKUP_CHUNK)
        found = next(((last, start, stop) for last, start, stop in ends if last >= offset), None)
        if found is None:
            return None
        last_offset, start, first_stop = found
        if last_offset >= limit:
            return None
        if first_stop - start > max_bytes:
            return FileSlice(self.file, start, first_stop - start) if at_least_one else None
        largest_stop = start + max_bytes
        # All of the rest is wanted: do not read its headers.
        if limit >= self.next_offset and largest_stop >= self.size:
            return FileSlice(self.file, start, self.size - start)
        # The index skips most batches; only the headers behind the last indexed one are read.
        stop = max(first_stop, self.index.boundary_before(max(0, limit - self.base_offset), largest_stop))
        for last_offset, _, batch_stop in walk_ends(self.file, stop, self.size, LOOKUP_CHUNK):
            if batch_stop > largest_stop or last_offset >= limit:
                break
            stop = batch_stop
        assert start < stop
        assert stop <= largest_stop
        return FileSlice(self.file, start, stop - start)

    def bound_at(self, stop: int) -> int:
        """Return an offset that is above all offsets of the batches before byte `stop`. If the positions of these
        batches are not in memory, the offset comes from the next index entry and may be higher than necessary, because
        no batches are read.
        """
        stops = self.stops
        assert stop <= self.size
        if stop >= stops[0]:
            return self.ends[min(bisect_left(stops, stop), len(stops) - 1)]
        index = self.index
        at = 1 + index.last_where(lambda entry: entry.position < stop)
        return self.base_offset + index[at].relative_offset + 1 if at < len(index) else self.ends[0]

    # ------------------------------------------------------------------------------------ loading and truncating

    def open_inactive(self, next_base: int) -> None:
        """Open a segment that is followed by another with base offset `next_base`, without reading its batches."""
        assert next_base > self.base_offset
        self._load_time_index()
        self.next_offset = next_base
        self.drop_tail()
        self.release()  # A broker may have thousands of segments, but the number of open files is limited.

    def open_end(self) -> bool:
        """Find the segment's end and timestamps from the indexes, without reading all batches. Return False if the
        segment is damaged.
        """
        self._load_time_index()
        first = next(walk(self.file, 0, self.size, LOOKUP_CHUNK), None)
        if first is not None and first.header.max_timestamp >= 0:
            self.roll_timestamp = first.header.max_timestamp
        end = self._walk_behind_index()
        self.drop_tail()
        # No checksum covers a batch's base offset: an end that no append could have made is damage as well.
        return end == self.size and self.base_offset <= self.next_offset <= self.offset_limit + 1

    def _load_time_index(self) -> None:
        self.max_timestamp = self.max_timestamp_offset = -1
        if entries := len(self.time_index):
            timestamp, relative = self.time_index[entries - 1]
            self.max_timestamp, self.max_timestamp_offset = timestamp, self.base_offset + relative

    def _walk_behind_index(self) -> int:
        """Find the segment's end and timestamps from the batch headers, beginning at the last indexed batch. Return the
        position after the last complete batch.
        """
        entries = len(self.index)
        self._index_position = position = self.index[entries - 1].position if entries else 0
        self._index_room = self._index_limit - entries
        for header, _, stop in walk(self.file, position, self.size, LOOKUP_CHUNK):
            self.next_offset = header.base_offset + header.last_offset_delta + 1
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = self.next_offset - 1
            position = stop
        return position

    def complete_truncation(self) -> None:
        """Fsync the file if the OS process ended between a truncation and its fsync, as the marker file shows."""
        if self._fs.exists(self._path + TRUNCATING):
            self.file.fsync()
            self._fs.remove(self._path + TRUNCATING)

    def forget(self) -> None:
        """Empty the indexes and the state in memory. The caller then passes all batches to `note` again."""
        for entries in self._entry_files():
            entries.cut(0)
        self.size = self._index_position = 0
        self._index_room = self._index_limit
        self.next_offset = self.base_offset
        self.max_timestamp = self.max_timestamp_offset = -1
        self.roll_timestamp = NEVER
        self.full = self.indexes_durable = False
        self.ends = array("q", [self.base_offset])
        self.stops = array("q", [0])

    def truncate(self, position: int, next_offset: int) -> None:
        """Keep the bytes before `position`, where a batch begins. `next_offset` becomes the segment's end.

        An fsync of the directory first makes the names of its files durable. On return the truncation is durable, too.
        Otherwise a power loss could bring old batches back behind new ones. If the broker is killed between truncation
        and fsync, a marker file (`TRUNCATING`) makes the next start fsync the segment's file.
        """
        assert 0 <= position
        assert position <= self.size
        assert next_offset <= self.next_offset
        mark = self._path + TRUNCATING
        self._fs.open(mark, create=True).close()
        self._fs.fsync_dir(parent(mark))
        self.file.truncate(position)
        self.file.fsync()
        self._fs.remove(mark)
        relative = next_offset - self.base_offset
        self.index.cut(1 + self.index.last_where(lambda entry: entry.position < position))
        self.time_index.cut(1 + self.time_index.last_where(lambda entry: entry.relative_offset < relative))
        aborted = self.aborted
        aborted.cut(1 + aborted.last_where(lambda entry: entry.last_offset < next_offset))
        self.size = position
        self.full = self.indexes_durable = False
        # The indexes are sparse: read the state after the last indexed batch from the batch headers.
        self._load_time_index()
        self._walk_behind_index()
        if self.size == 0:
            self.roll_timestamp = NEVER
        self.next_offset = next_offset
        if self.stops[0] > position:
            self.drop_tail()
        else:
            keep = bisect_left(self.stops, position) + 1
            del self.ends[keep:], self.stops[keep:]
            self.ends[-1] = next_offset
        assert len(self.ends) == len(self.stops)
        assert self.ends[-1] == self.next_offset
        assert self.stops[-1] == self.size

    def remove(self) -> None:
        """Remove the files. Slices that are being sent keep the bytes until the slices are dropped."""
        for suffix in (*SUFFIXES, TRUNCATING):
            if self._fs.exists(self._path + suffix):
                self._fs.remove(self._path + suffix)
