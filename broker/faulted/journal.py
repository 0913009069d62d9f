"""Journals the changes of one file that are not durable yet, so that a power loss can undo them.

The file itself always has the newest content, like a page cache. For each write and truncation since the last fsync the
journal has the bytes that it replaced, written before the change: an append costs 29 bytes. Like the page cache the
journal survives the OS process, so SIGKILL loses nothing, at any moment, even while the OS process is paused. Only a
power loss (`squall.broker.faulted.losses`) undoes the changes.

A file's journal is named after the file's inode, so renaming the file needs no entry.
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
"""Packs the magic, and the position in the journal before which all changes are durable."""
RECORD = Struct("<BQQQI")
"""Packs kind, offset, length written, the file's size before, and the length of the replaced bytes, which follow."""
WRITE, CUT, FAILED, SYNCED = 1, 2, 3, 4
"""Are the kinds of records. CUT truncates to `offset`. FAILED and SYNCED give the result of an fsync, which covered all
records before byte `offset` of the journal.
"""
COMPACT_BYTES = 1 << 20


@dataclass(slots=True)
class FileChange:
    """Describes one write or truncation. `is_durable` is None until an fsync has covered it, then whether the fsync
    succeeded.
    """

    kind: int
    offset: int
    length: int
    size_before: int
    replaced: bytes
    at: int
    is_durable: bool | None = None


class FileJournal:
    """Writes the journal of one file. A position from `mark` stays valid when the journal is shortened.

    It is not thread-safe: its file system holds one lock around every call.
    """

    __slots__ = ("_base", "_has_failed_sync", "_end", "_fd", "path", "pending_bytes")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._base = 0
        self.pending_bytes = 0
        """Counts the unsynced bytes that this incarnation of the broker has written."""
        changes, end = parse(_whole(self._fd))
        self._has_failed_sync = any(change.is_durable is not None for change in changes)
        if changes:
            self._end = end
            os.ftruncate(self._fd, end)
        else:
            self._end = HEADER.size
            self._start_over()

    def record_write(self, offset: int, length: int, size_before: int, replaced: Buffer = b"") -> None:
        """Record a write of `length` bytes that is about to happen. `replaced`: the bytes that it overwrites."""
        self._note(WRITE, offset, length, size_before, replaced)
        self.pending_bytes += length

    def record_truncation(self, size: int, size_before: int, replaced: Buffer = b"") -> None:
        """Record a truncation to `size` bytes that is about to happen. `replaced`: the bytes that it removes."""
        self._note(CUT, size, 0, size_before, replaced)

    def mark(self) -> int:
        """Return the journal's end: an fsync that begins now covers all changes before it."""
        return self._base + self._end

    def fsync_succeeded(self, mark: int) -> None:
        """Note that an fsync succeeded. `mark`: the journal's end when the fsync began. All changes before it are
        durable, except those that an earlier, failed fsync covered.
        """
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

    def fsync_failed(self, mark: int) -> None:
        """Note that an fsync failed. `mark`: the journal's end when the fsync began. The kernel marks the file's pages
        clean after a failure, so no later fsync makes the changes before `mark` durable.
        """
        self._has_failed_sync = True
        self._note(FAILED, max(0, mark - self._base), 0, 0)

    @property
    def is_clean(self) -> bool:
        """Is True if there are no unsynced changes."""
        return self._end == HEADER.size

    def close(self) -> None:
        """Close the file descriptor."""
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
        # Truncate first: a journal that ends before its durable position counts as empty, whatever the header says.
        os.ftruncate(self._fd, HEADER.size)
        os.pwrite(self._fd, HEADER.pack(MAGIC, HEADER.size), 0)
        self._base += self._end - HEADER.size
        self._end = HEADER.size
        self.pending_bytes = 0

    def _compact(self, upto: int) -> None:
        """Drop the part of a long journal before `upto`, which is durable. Without this, a file that is written during
        each fsync would have a journal that never becomes empty.
        """
        if upto < COMPACT_BYTES or upto < self._end // 2:
            return
        rest = os.pread(self._fd, self._end - upto, upto)
        fresh = os.open(self.path + ".new", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        os.pwrite(fresh, HEADER.pack(MAGIC, HEADER.size) + rest, 0)
        # Without an fsync: the journal has to survive this OS process, and not the machine.
        os.replace(self.path + ".new", self.path)
        os.close(self._fd)
        self._fd = fresh
        self._base += upto - HEADER.size
        self._end = HEADER.size + len(rest)
        self.pending_bytes = sum(change.length for change in parse(_whole(fresh))[0])


def _whole(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def parse(data: bytes) -> tuple[list[FileChange], int]:
    """Return the changes after the journal's durable position (see `HEADER`), in order, and the journal's end.

    An incomplete record at the end belongs to a change that never began. The result is empty for bytes that are no
    journal.
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
