"""Holds one file's bytes on a simulated disk: the bytes in the page cache, and the changes that a power loss could
undo.

Only the cached content is kept as a whole. For every write and truncation since the last fsync, the bytes that it
replaced are remembered. So an append costs a tuple and no copy. At a power loss the durable content is found by undoing
these changes from the last to the first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SECTOR = 512
"""Is the size of a sector: a disk writes these bytes all together or not at all."""

SURVIVES = 0.4
TEARS = 0.25
"""Is the probability that an unsynced write tears: only a beginning of it survives."""

Op = tuple[int, int, bytes, int]
"""Describes an unsynced change: offset, length written (CUT for a truncation to that offset), bytes that the change
replaced or cut off, size of the file before the change.
"""
CUT = -1


@dataclass(slots=True)
class LostChanges:
    """Counts a file's unsynced bytes before a power loss, those that were lost, and the writes that were torn. The
    counts of several files can be added up.
    """

    bytes_pending: int = 0
    bytes_lost: int = 0
    torn: int = 0

    def add(self, other: LostChanges) -> None:
        """Add the counts of another file's losses."""
        self.bytes_pending += other.bytes_pending
        self.bytes_lost += other.bytes_lost
        self.torn += other.torn


class FileContent:
    """Holds a file's bytes, independent of its names. `cached` may be read directly; changes must use methods."""

    __slots__ = ("_after_failure", "cached", "pending")

    def __init__(self, content: bytes = b"") -> None:
        self.cached = bytearray(content)
        self.pending: list[Op] = []
        """Lists the changes since the last fsync that covered them, in order."""
        self._after_failure: list[bool] = []
        """Says of the first changes in `pending`, in the same order, whether they are durable. It is empty until an
        fsync fails. True: a later fsync made the change durable. False: the failed fsync should have written the
        change, and no later fsync will. A change without an entry is newer than the last fsync.
        """

    # ----------------------------------------------------------------------------------------------------- changes

    def append(self, data: bytes | bytearray | memoryview) -> int:
        """Append data at the end. Returns the offset where the data begins."""
        cached = self.cached
        start = len(cached)
        cached += data
        self.pending.append((start, len(cached) - start, b"", start))
        return start

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write at `offset`; a gap before it reads as zeros."""
        if not data:
            return
        end = offset + len(data)
        self.pending.append((offset, len(data), bytes(self.cached[offset:end]), len(self.cached)))
        if offset > len(self.cached):
            self.cached.extend(bytes(offset - len(self.cached)))
        self.cached[offset:end] = data

    def truncate(self, size: int) -> None:
        """Cut or zero-extend the file to `size` bytes."""
        if size == len(self.cached) and not self.pending:
            return  # Else it may outlive the writes that gave the file this size.
        self.pending.append((size, CUT, bytes(self.cached[size:]), len(self.cached)))
        if size < len(self.cached):
            del self.cached[size:]
        else:
            self.cached.extend(bytes(size - len(self.cached)))

    def synced(self) -> None:
        """Make changes durable, as a successful fsync does. Changes that a failed fsync should have written stay
        non-durable, because their pages count as clean since then.
        """
        if self._after_failure:
            self._after_failure.extend([True] * (len(self.pending) - len(self._after_failure)))
        else:
            self.pending.clear()

    def sync_failed(self) -> None:
        """Mark the pages as clean, as a failed fsync does: no later fsync will write them."""
        self._after_failure.extend([False] * (len(self.pending) - len(self._after_failure)))

    # -------------------------------------------------------------------------------------------------- power loss

    def durable(self) -> bytes:
        """Return the bytes that would surely survive a power loss: the content without any change that might be lost.
        """
        content, written = self._undone()
        for sure, (op, data) in zip(self._sure(), written, strict=True):
            if sure:
                _redo(content, op, data)
        return bytes(content)

    def lose_power(self, rng: random.Random) -> LostChanges:
        """Drop what a power loss takes: each unsynced change survives, tears or vanishes independently. All that
        remains is durable.

        In half of the cases the kernel has written back all changes up to a random one just before. Draws nothing if no
        change is pending.
        """
        loss = LostChanges()
        if not self.pending:
            return loss
        sure = self._sure()
        content, written = self._undone()
        written_back = rng.randrange(len(written) + 1) if rng.random() < 0.5 else 0
        for at, (op, data) in enumerate(written):
            if sure[at]:
                _redo(content, op, data)
                continue
            loss.bytes_pending += len(data)
            fate = 0.0 if at < written_back else rng.random()
            if fate < SURVIVES:
                _redo(content, op, data)
                continue
            kept, grown = _tear(op[0], len(data), rng) if fate < SURVIVES + TEARS and data else (0, False)
            loss.bytes_lost += len(data) - kept
            loss.torn += kept > 0 or grown
            if kept:
                _redo(content, op, data[:kept])
            if grown and len(content) < op[0] + len(data):
                content.extend(bytes(op[0] + len(data) - len(content)))
        self.cached = content
        self.pending = []
        self._after_failure = []
        return loss

    def lost(self) -> LostChanges:
        """Return the counts that `lose_power` would return if the whole file were lost."""
        sure = self._sure()
        pending = sum(op[1] for at, op in enumerate(self.pending) if op[1] != CUT and not sure[at])
        return LostChanges(bytes_pending=pending, bytes_lost=pending)

    def _sure(self) -> list[bool]:
        return self._after_failure + [False] * (len(self.pending) - len(self._after_failure))

    def _undone(self) -> tuple[bytearray, list[tuple[Op, bytes]]]:
        """Return the content before the first pending change, and the changes in order, each with the bytes it wrote.
        """
        content = bytearray(self.cached)
        written: list[tuple[Op, bytes]] = []
        for op in reversed(self.pending):
            offset, length, replaced, size = op
            # All later changes are undone by now, so these are the bytes of this one.
            written.append((op, b"" if length == CUT else bytes(content[offset : offset + length])))
            content[offset : offset + len(replaced)] = replaced
            del content[size:]
        written.reverse()
        return content, written


def _redo(content: bytearray, op: Op, data: bytes) -> None:
    offset = op[0]
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if op[1] == CUT:
        del content[offset:]
    else:
        content[offset : offset + len(data)] = data


def _tear(offset: int, length: int, rng: random.Random) -> tuple[int, bool]:
    """Draw how much of a torn write survives, as (kept, grown). `kept`: how many of its first bytes survive; in half of
    the cases they end at a sector's boundary. `grown`: the file is nevertheless as long as after the whole write, with
    zeros for the missing bytes; the probability is 1/4.
    """
    kept = rng.randrange(length)
    if rng.random() < 0.5:
        kept = max(0, (offset + kept) // SECTOR * SECTOR - offset)
    return kept, rng.random() < 0.25
