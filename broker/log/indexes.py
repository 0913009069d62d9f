"""Sparse indexes beside a segment, in Kafka's binary layouts: offset (8 bytes an entry), time (12), aborted (34) (L1).

Entries ascend. The newest stay in memory until `write_out`: a lookup needs no system call for them, an append none
for most of its entries. What a crash loses of the offset and time indexes, recovery makes again from the batches.

Unlike Kafka's, the files are neither preallocated nor mapped: their size is that of their entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Any, Generic, NamedTuple, TypeVar

from squall.broker.env import File, Fs

WRITE_OUT_AT = 8 << 10
READ_ENTRIES = 120
"""Entries of an index that are read at once where many are needed."""


E = TypeVar("E")


class IndexFile(Generic[E]):
    """A file of entries of one fixed size, appended at the end. Opened when first needed."""

    ENTRY: Struct

    @staticmethod
    def made(iterable: Iterable[Any]) -> E:
        """An entry from what `ENTRY` reads."""
        raise NotImplementedError

    __slots__ = ("_count", "_file", "_fs", "_path", "_pending")

    def __init__(self, fs: Fs, path: str, *, fresh: bool) -> None:
        """`fresh`: the file is to be made, or emptied. Otherwise it is read; one that is missing counts as empty."""
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
        """The open file, for fsync; without what is pending. Made if missing."""
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
        """The last entry for which `holds`, which is true of the first ones and false of the rest; -1 for none."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if holds(self[middle]):
                low = middle + 1
            else:
                high = middle
        return low - 1

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        assert count >= 0
        if count < len(self):
            self.write_out()  # Some of the entries that stay may still be in memory.
            self.file.truncate(count * self.ENTRY.size)
            self._count = count
        assert len(self) <= count

    def write_out(self) -> None:
        """Hand over to the page cache what is pending."""
        if self._pending:
            start = len(self) * self.ENTRY.size - len(self._pending)
            self.file.pwrite(self._pending, start)  # Not append: a torn entry may be at the end of the file.
            self._count += len(self._pending) // self.ENTRY.size
            self._pending = bytearray()

    def release(self) -> None:
        """Write out and close the file; it is opened again when needed."""
        self.write_out()
        if self._file is not None:
            self._file.close()
            self._file = None
            self._count = -1


class OffsetIndexEntry(NamedTuple):
    """A batch: its last offset less the segment's base, and the byte at which it begins."""

    relative_offset: int
    position: int


class OffsetIndex(IndexFile[OffsetIndexEntry]):
    """Some of the segment's batches."""

    ENTRY = Struct(">Ii")
    made = staticmethod(OffsetIndexEntry._make)
    __slots__ = ()

    def batch_before(self, relative_offset: int) -> int:
        """A byte where a batch begins, such that no batch before it reaches `relative_offset`."""
        at = self.last_where(lambda entry: entry.relative_offset <= relative_offset)
        return 0 if at < 0 else self[at].position

    def boundary_before(self, relative_limit: int, position: int) -> int:
        """A byte up to `position` where a batch begins, such that those before it lie below `relative_limit`."""
        at = self.last_where(lambda entry: entry.relative_offset < relative_limit and entry.position <= position)
        return 0 if at < 0 else self[at].position


class TimeIndexEntry(NamedTuple):
    """The largest timestamp up to here, and the last offset of the batch that has it less the segment's base."""

    timestamp: int
    relative_offset: int


class TimeIndex(IndexFile[TimeIndexEntry]):
    """Maps offsets to the largest timestamp up to them."""

    ENTRY = Struct(">qI")
    made = staticmethod(TimeIndexEntry._make)
    __slots__ = ("last_timestamp",)

    def __init__(self, fs: Fs, path: str, *, fresh: bool) -> None:
        super().__init__(fs, path, fresh=fresh)
        self.last_timestamp: int | None = -1 if fresh else None

    def add_if_later(self, timestamp: int, relative_offset: int) -> None:
        """Append an entry unless the last one has this timestamp already."""
        if self.last_timestamp is None:
            self.last_timestamp = self[len(self) - 1].timestamp if len(self) else -1
        if timestamp > self.last_timestamp:
            self.add(timestamp, relative_offset)
            self.last_timestamp = timestamp
        assert timestamp <= self.last_timestamp

    def cut(self, count: int) -> None:
        """Keep the first `count` entries."""
        super().cut(count)
        self.last_timestamp = None

    def offset_before(self, timestamp: int) -> int:
        """A relative offset such that all batches before the one it is in are earlier than `timestamp`."""
        at = self.last_where(lambda entry: entry.timestamp < timestamp)
        return 0 if at < 0 else self[at].relative_offset


class AbortedTxn(NamedTuple):
    """A transaction that ended with an abort marker. Offsets absolute; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """The last stable offset once the marker was appended, with all before it replicated."""


class AbortedIndex(IndexFile[AbortedTxn]):
    """Entries (version 0, producer id, first offset, last offset, last stable offset). The file exists once needed."""

    ENTRY = Struct(">hqqqq")
    __slots__ = ()

    @staticmethod
    def made(iterable: Iterable[Any]) -> AbortedTxn:
        """Make an entry of the file's fields, without the version."""
        _, *fields = iterable
        return AbortedTxn(*fields)

    def add_aborted(self, aborted: AbortedTxn) -> None:
        """Append an entry."""
        self.add(0, *aborted)

    def __iter__(self) -> Iterator[AbortedTxn]:
        return self.ending_from(0)

    def ending_from(self, offset: int) -> Iterator[AbortedTxn]:
        """The entries whose marker is at `offset` or behind it, in the order of their markers."""
        size, count = self.ENTRY.size, len(self)
        at = 1 + self.last_where(lambda entry: entry.last_offset < offset)
        in_file = count - len(self._pending) // size
        while at < in_file:
            wanted = min(in_file - at, READ_ENTRIES)
            rows = self.file.pread(wanted * size, at * size)
            if len(rows) != wanted * size:
                raise OSError(f"{self._path} ends before entry {at + wanted}")
            yield from map(self.made, self.ENTRY.iter_unpack(rows))
            at += wanted
        for place in range(at, count):
            yield self[place]
