"""Implements the sparse indexes of a segment in Kafka's binary layouts: offset index (8 bytes an entry), time index
(12) and transaction index (34) (mechanism L1 in docs/mechanisms.md).

Entries ascend. The newest entries stay in memory until `write_out`, so a lookup among them and most appends need no
system call. After a crash, recovery rebuilds lost entries of the offset and time indexes from the batches.

Unlike Kafka's, the files are neither preallocated nor memory-mapped: they are as long as their entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeVar

from squall.broker.env import File, Fs

WRITE_OUT_AT = 8 << 10
READ_ENTRIES = 120
"""Limits how many entries of a transaction index are read with one `pread`."""


E = TypeVar("E")


class IndexFile(Generic[E]):
    """Reads and appends the fixed-size entries of one index file. The file is opened when it is first needed."""

    ENTRY: Struct

    @staticmethod
    def made(iterable: Iterable[Any]) -> E:
        """Make an entry from its fields, as `ENTRY`, the binary layout of one entry, unpacks them."""
        raise NotImplementedError

    __slots__ = ("_count", "_file", "_fs", "_path", "_pending")

    def __init__(self, fs: Fs, path: str, *, fresh: bool) -> None:
        """Create or empty the file if `fresh`; otherwise use the existing file. A missing file counts as empty."""
        self._fs = fs
        self._path = path
        self._file: File | None = None
        self._count = -1  # Entries in the file; unknown until it is opened.
        self._pending = bytearray()
        if fresh:
            self._file = fs.open(path, create=True, truncate=True)
            self._count = 0

    @property
    def file(self) -> File:
        """Returns the open file, for fsync; creates it if it is missing. Pending entries are not in the file yet."""
        if self._file is None:
            self._file = self._fs.open(self._path, create=True)
            self._count = self._file.size() // self.ENTRY.size
        return self._file

    def __len__(self) -> int:
        if self._count < 0:
            self._count = 0
            if self._fs.exists(self._path):
                _ = self.file
        return self._count + len(self._pending) // self.ENTRY.size

    def __getitem__(self, at: int) -> E:
        count = len(self)
        assert 0 <= at
        assert at < count
        in_file = at - (count - len(self._pending) // self.ENTRY.size)
        if in_file >= 0:
            return self.made(self.ENTRY.unpack_from(self._pending, in_file * self.ENTRY.size))
        return self.made(self.ENTRY.unpack(self.file.pread(self.ENTRY.size, at * self.ENTRY.size)))

    def add(self, *values: int) -> None:
        """Append one entry."""
        self._pending += self.ENTRY.pack(*values)
        if len(self._pending) >= WRITE_OUT_AT:
            self.write_out()

    def last_where(self, holds: Callable[[E], bool]) -> int:
        """Return the position of the last entry for which `holds` is true, or -1 if there is none. `holds` must be true
        for all entries before that one and false for all entries after it.
        """
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if holds(self[middle]):
                low = middle + 1
            else:
                high = middle
        return low - 1

    def cut(self, count: int) -> None:
        """Keep the first `count` entries and drop the others."""
        assert count >= 0
        if count < len(self):
            self.write_out()  # Some of the entries that stay may still be in memory.
            self.file.truncate(count * self.ENTRY.size)
            self._count = count
            assert not self._pending
        assert len(self) <= count

    def write_out(self) -> None:
        """Write the pending entries to the page cache."""
        if self._pending:
            assert len(self._pending) % self.ENTRY.size == 0
            start = len(self) * self.ENTRY.size - len(self._pending)
            assert start % self.ENTRY.size == 0
            self.file.pwrite(self._pending, start)  # Not append: a torn entry may be at the end of the file.
            entries = len(self)
            self._count += len(self._pending) // self.ENTRY.size
            self._pending = bytearray()
            assert len(self) == entries

    def release(self) -> None:
        """Write the pending entries and close the file. The file is opened again when it is needed."""
        self.write_out()
        if self._file is not None:
            # The count is read from the file's size when it is opened again: pending entries would be counted twice.
            assert not self._pending
            self._file.close()
            self._file = None
            self._count = -1


class OffsetIndexEntry(NamedTuple):
    """Holds a batch's last offset, relative to the segment's base offset, and the position of its first byte."""

    relative_offset: int
    position: int


class OffsetIndex(IndexFile[OffsetIndexEntry]):
    """Maps the last offsets of some batches of the segment to their positions in the log file."""

    ENTRY = Struct(">Ii")
    made = staticmethod(OffsetIndexEntry._make)
    __slots__ = ()

    def batch_before(self, relative_offset: int) -> int:
        """Return the byte position in the log file from which to search for the batch with `relative_offset`. It is the
        start of the last indexed batch that ends at or before this offset, or 0 if there is none.
        """
        assert relative_offset >= 0
        at = self.last_where(lambda entry: entry.relative_offset <= relative_offset)
        return 0 if at < 0 else self[at].position

    def boundary_before(self, relative_limit: int, position: int) -> int:
        """Return the start of the last indexed batch that begins at or before byte `position` of the log file and ends
        below `relative_limit`. Return 0 if there is none.
        """
        assert relative_limit >= 0
        assert position >= 0
        at = self.last_where(lambda entry: entry.relative_offset < relative_limit and entry.position <= position)
        return 0 if at < 0 else self[at].position


class TimeIndexEntry(NamedTuple):
    """Holds the largest timestamp so far, and the last offset of its batch relative to the segment's base offset."""

    timestamp: int
    relative_offset: int


class TimeIndex(IndexFile[TimeIndexEntry]):
    """Maps offsets to the largest timestamp up to these offsets."""

    ENTRY = Struct(">qI")
    made = staticmethod(TimeIndexEntry._make)
    __slots__ = ("last_timestamp",)

    def __init__(self, fs: Fs, path: str, *, fresh: bool) -> None:
        super().__init__(fs, path, fresh=fresh)
        self.last_timestamp: int | None = -1 if fresh else None

    def add_if_later(self, timestamp: int, relative_offset: int) -> None:
        """Append an entry if its timestamp is larger than that of the last entry."""
        if self.last_timestamp is None:
            self.last_timestamp = self[len(self) - 1].timestamp if len(self) else -1
        if timestamp > self.last_timestamp:
            self.add(timestamp, relative_offset)
            self.last_timestamp = timestamp
        assert timestamp <= self.last_timestamp

    def cut(self, count: int) -> None:
        """Keep the first `count` entries and drop the others."""
        super().cut(count)
        self.last_timestamp = None

    def offset_before(self, timestamp: int) -> int:
        """Return the relative offset from which to search for `timestamp`: all batches before it are older. Return 0 if
        the index excludes no batch.
        """
        at = self.last_where(lambda entry: entry.timestamp < timestamp)
        return 0 if at < 0 else self[at].relative_offset


class AbortedTxn(NamedTuple):
    """Describes an aborted transaction. Its offsets are absolute; `last_offset` is the offset of the abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """Gives the start of the oldest transaction that was still open after the marker, or `last_offset` + 1 if none was.
    It ignores the high watermark.
    """


class AbortedIndex(IndexFile[AbortedTxn]):
    """Lists the aborted transactions of a segment (.txnindex). The file is created with its first entry."""

    ENTRY = Struct(">hqqqq")
    __slots__ = ()

    @staticmethod
    def made(iterable: Iterable[Any]) -> AbortedTxn:
        """Make an entry from its fields in the file. Drops the first field, the format version."""
        _, *fields = iterable
        return AbortedTxn(*fields)

    def add_aborted(self, aborted: AbortedTxn) -> None:
        """Append the entry of an aborted transaction, with format version 0."""
        self.add(0, *aborted)

    def __iter__(self) -> Iterator[AbortedTxn]:
        return self.ending_from(0)

    def ending_from(self, offset: int) -> Iterator[AbortedTxn]:
        """Yield the transactions whose abort marker is at or after `offset`, in the order of their markers."""
        size, count = self.ENTRY.size, len(self)
        at = 1 + self.last_where(lambda entry: entry.last_offset < offset)
        in_file = count - len(self._pending) // size
        assert 0 <= in_file <= count
        while at < in_file:
            wanted = min(in_file - at, READ_ENTRIES)
            assert wanted > 0
            rows = self.file.pread(wanted * size, at * size)
            if len(rows) != wanted * size:
                raise OSError(f"{self._path} ends before entry {at + wanted}")
            yield from map(self.made, self.ENTRY.iter_unpack(rows))
            at += wanted
        for place in range(at, count):
            yield self[place]
