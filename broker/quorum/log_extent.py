"""Tracks where a log starts and ends, and the epoch of each of its offsets. The Raft core needs no more of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from squall.broker.quorum.messages import SnapshotId


class LogExtent:
    """Holds the offsets and epochs of one log. `epochs` holds (epoch, first offset), both strictly increasing.

    Records before `start_offset` are in a snapshot only; `start_epoch` is the epoch of the last of them (0 if the log
    starts at 0).
    """

    __slots__ = ("end_offset", "epochs", "start_epoch", "start_offset")

    def __init__(
        self,
        end_offset: int = 0,
        epochs: Iterable[tuple[int, int]] = (),
        start_offset: int = 0,
        start_epoch: int = 0,
    ) -> None:
        self.start_offset = start_offset
        self.start_epoch = start_epoch
        self.end_offset = end_offset
        self.epochs = list(epochs)
        assert 0 <= start_offset <= end_offset
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in zip(self.epochs, self.epochs[1:], strict=False))

    @property
    def last_epoch(self) -> int:
        """Returns the epoch of the last record; 0 if there is none."""
        return self.epochs[-1][0] if self.epochs else self.start_epoch

    def append(self, epoch: int, base_offset: int, end_offset: int) -> None:
        """Add a batch of `epoch` with the offsets [base_offset, end_offset)."""
        assert base_offset == self.end_offset < end_offset
        assert epoch >= self.last_epoch, "epochs never go back along a log"
        if not self.epochs or epoch > self.epochs[-1][0]:
            self.epochs.append((epoch, base_offset))
        self.end_offset = end_offset

    def truncate_to(self, offset: int) -> None:
        """Remove the records at and after `offset`."""
        assert self.start_offset <= offset <= self.end_offset
        self.end_offset = offset
        # An epoch that begins at the new end has no record left.
        while self.epochs and self.epochs[-1][1] >= offset:
            self.epochs.pop()

    def trim_to(self, snapshot: SnapshotId) -> None:
        """Remove the records before the end of `snapshot`, which is a snapshot of this log."""
        offset = snapshot.end_offset
        assert self.start_offset <= offset <= self.end_offset
        assert self.epoch_at(offset - 1) == snapshot.epoch, f"{snapshot} is none of this log"
        later = [(epoch, first) for epoch, first in self.epochs if first >= offset]
        if offset < self.end_offset and (not later or later[0][1] > offset):
            # The epoch that began before the new start begins there now.
            later.insert(0, (self.epoch_at(offset), offset))
        self.epochs = later
        self.start_offset, self.start_epoch = offset, snapshot.epoch

    def restart_at(self, snapshot: SnapshotId) -> None:
        """Remove all records. The next record follows the end of `snapshot`."""
        self.start_offset = self.end_offset = snapshot.end_offset
        self.start_epoch = snapshot.epoch
        self.epochs = []

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at `offset`. For an offset before the log's start, return the epoch of the
        last record in the snapshot.
        """
        found = self.start_epoch
        for epoch, first in self.epochs:
            if first > offset:
                break
            found = epoch
        return found

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Return the highest epoch in this log that is at most `epoch`, and the exclusive end offset of that epoch.

        Returns (0, start offset) if every record has a higher epoch.
        """
        end = self.end_offset
        for known, first in reversed(self.epochs):
            if known <= epoch:
                return known, end
            end = first
        return (self.start_epoch, end) if self.start_offset and self.start_epoch <= epoch else (0, self.start_offset)

    def agrees(self, offset: int, last_epoch: int) -> bool:
        """Return whether another log is a prefix of this log (log matching). The other log ends at `offset`, after a
        record of `last_epoch`.
        """
        if offset == self.start_offset == 0:
            return True
        epoch, end = self.end_of(last_epoch)
        return epoch == last_epoch and offset <= end

    def has_left(self, offset: int, last_epoch: int) -> bool:
        """Return whether this log has trimmed the records that another log needs next, so that the other log must
        continue from a snapshot. The other log ends at `offset`, after a record of `last_epoch`.
        """
        if not self.start_offset:
            return False
        # Only the epoch before the start is known here: if it differs, nothing in this log says where the logs part.
        other = offset == self.start_offset and last_epoch != self.start_epoch
        return offset < self.start_offset or other or last_epoch < self.start_epoch

    def truncation_target(self, epoch: int, end_offset: int) -> int:
        """Return where to truncate this follower's log if the leader says that its `epoch` ends at `end_offset`.

        Truncating to the high watermark instead could lose committed records (KIP-101). If this log lacks that epoch,
        truncate at the end of the epoch before it and ask the leader again (KIP-279).
        """
        known, end = self.end_of(epoch)
        return min(end, end_offset) if known == epoch else end


def continues_from_snapshot(snapshot: SnapshotId, end_offset: int, epochs: Iterable[tuple[int, int]]) -> bool:
    """Return whether a log found on disk continues from `snapshot`; if not, the caller empties the log. `epochs` holds
    the log's (epoch, first offset) pairs.

    The result is False if the log ends before the snapshot does, or if it holds the snapshot's last record with another
    epoch. Both can happen after a power loss: it can undo an unsynced truncation, while a snapshot survives that holds
    records written after the truncation.
    """
    if end_offset < snapshot.end_offset:
        return False
    wrote = [epoch for epoch, first in epochs if first < snapshot.end_offset]
    return not wrote or wrote[-1] == snapshot.epoch
