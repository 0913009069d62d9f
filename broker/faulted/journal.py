"""Notes what of one file is not durable yet, so that it can be taken back when the power is lost.

The files themselves are always what processes see, as a page cache is. A file's journal holds each write and truncation
since the last fsync as what it replaced, noted before it is done: an append costs 29 bytes. It survives the process as
the page cache does, so that SIGKILL loses nothing, at whatever moment and from a stopped process too; only a power loss
(`squall.broker.faulted.losses`) undoes it.

A file's journal has the name of its inode: renaming the file needs no entry in it.
"""

# Rejected: unsynced bytes in the broker's memory. Each end of the process would be a power loss then. With a journal,
# `sendfile` and reads are the real ones.

from __future__ import annotations

import os
from dataclasses import dataclass
from struct import Struct

from squall.broker.env import Buffer

MAGIC = b"sqjrnl01"
HEADER = Struct("<8sQ")
"""Magic; up to which byte of the journal all is durable."""
RECORD = Struct("<BQQQI")
"""Kind, offset, length written, the file's size before, length of the bytes that follow: those that it replaced."""
WRITE, CUT, FAILED, SYNCED = 1, 2, 3, 4
"""Kinds. CUT: a truncation to `offset`. FAILED and SYNCED: of an fsync, for all records before byte `offset`."""
COMPACT_BYTES = 1 << 20


@dataclass(slots=True)
class FileChange:
    """Describes one write or truncation. `is_durable`: None while no fsync has ended since."""

    kind: int
    offset: int
    length: int
    size_before: int
    replaced: bytes
    at: int
    is_durable: bool | None = None


class FileJournal:
    """The journal of one file, being written. Positions that it gives out stay valid when it is cut short.

    Not safe across threads by itself: its file system holds one lock around every call.
    """

    __slots__ = ("_base", "_has_failed_sync", "_end", "_fd", "path", "pending_bytes")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._base = 0
        self.pending_bytes = 0
        """Written and not durable; of what an earlier incarnation left, nothing is counted."""
        changes, end = parse(_whole(self._fd))
        self._has_failed_sync = any(change.is_durable is not None for change in changes)
        if changes:
            self._end = end
            os.ftruncate(self._fd, end)
        else:
            self._end = HEADER.size
            self._start_over()

    def wrote(self, offset: int, length: int, size_before: int, replaced: Buffer = b"") -> None:
        """A write of `length` bytes is about to be done, over `replaced`."""
        self._note(WRITE, offset, length, size_before, replaced)
        self.pending_bytes += length

    def cut(self, size: int, size_before: int, replaced: Buffer = b"") -> None:
        """A truncation to `size` is about to be done; it cuts off `replaced`."""
        self._note(CUT, size, 0, size_before, replaced)

    def mark(self) -> int:
        """Return the journal's end: an fsync that begins now covers all before it."""
        return self._base + self._end

    def synced(self, mark: int) -> None:
        """All before the mark is durable, but for what an earlier fsync failed on."""
        upto = mark - self._base
        if upto < HEADER.size:
            return
        if self._has_failed_sync:
            self._note(SYNCED, upto, 0, 0)
        elif upto >= self._end:
            self._start_over()
        else:
            os.pwrite(self._fd, HEADER.pack(MAGIC, upto), 0)
            self._compact(upto)

    def failed(self, mark: int) -> None:
        """An fsync failed: its pages count as clean from now on, so no later one makes them durable."""
        self._has_failed_sync = True
        self._note(FAILED, max(0, mark - self._base), 0, 0)

    @property
    def is_clean(self) -> bool:
        """Nothing is pending."""
        return self._end == HEADER.size

    def close(self) -> None:
        """Release the descriptor."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _note(self, kind: int, offset: int, length: int, size_before: int, replaced: Buffer = b"") -> None:
        record = RECORD.pack(kind, offset, length, size_before, len(replaced))
        data = record + replaced if replaced else record
        if os.pwrite(self._fd, data, self._end) != len(data):
            raise OSError(f"{self.path}: half a record was written: is the disk full?")
        self._end += len(data)

    def _start_over(self) -> None:
        # Cut first: a journal that ends before where all is durable holds nothing, whatever its header says.
        os.ftruncate(self._fd, HEADER.size)
        os.pwrite(self._fd, HEADER.pack(MAGIC, HEADER.size), 0)
        self._base += self._end - HEADER.size
        self._end = HEADER.size
        self.pending_bytes = 0

    def _compact(self, upto: int) -> None:
        """Drop the durable part where it is long: a file that is written to while each fsync runs has no other end."""
        if upto < COMPACT_BYTES or upto < self._end // 2:
            return
        rest = os.pread(self._fd, self._end - upto, upto)
        fresh = os.open(self.path + ".new", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        os.pwrite(fresh, HEADER.pack(MAGIC, HEADER.size) + rest, 0)
        os.replace(self.path + ".new", self.path)
        os.close(self._fd)
        self._fd = fresh
        self._base += upto - HEADER.size
        self._end = HEADER.size + len(rest)
        self.pending_bytes = sum(change.length for change in parse(_whole(fresh))[0])


def _whole(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def parse(data: bytes) -> tuple[list[FileChange], int]:
    """The changes in a journal that an fsync did not make durable before a later one failed, in order, and its end.

    Half a record at the end is that of a write that was never begun. Empty for what is no journal.
    """
    if len(data) < HEADER.size:
        return [], HEADER.size
    magic, durable = HEADER.unpack_from(data)
    if magic != MAGIC:
        return [], HEADER.size
    at = min(durable, len(data))
    changes: list[FileChange] = []
    while at + RECORD.size <= len(data):
        kind, offset, length, size_before, replaced = RECORD.unpack_from(data, at)
        end = at + RECORD.size + replaced
        if end > len(data):
            break
        if kind in (WRITE, CUT):
            changes.append(FileChange(kind, offset, length, size_before, data[at + RECORD.size : end], at))
        else:
            for change in changes:
                if change.is_durable is None and change.at < offset:
                    change.is_durable = kind == SYNCED
        at = end
    return changes, at
