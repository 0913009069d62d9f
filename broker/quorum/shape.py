"""The shape of a log: where it starts and ends and which epoch wrote which offsets. All that Raft must know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class LogShape:
    """Offsets and epochs of one log. `epochs` holds (epoch, first offset), both strictly increasing."""

    __slots__ = ("end_offset", "epochs", "start_offset")

    def __init__(self, end_offset: int = 0, epochs: Iterable[tuple[int, int]] = (), start_offset: int = 0) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.epochs = list(epochs)
        assert 0 <= start_offset <= end_offset
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in zip(self.epochs, self.epochs[1:], strict=False))

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record; 0 where there is none."""
        return self.epochs[-1][0] if self.epochs else 0

    def append(self, epoch: int, base_offset: int, end_offset: int) -> None:
        """A batch of `epoch` now stands at [base_offset, end_offset)."""
        assert base_offset == self.end_offset < end_offset
        assert epoch >= self.last_epoch, "epochs never go back along a log"
        if epoch > self.last_epoch:
            self.epochs.append((epoch, base_offset))
        self.end_offset = end_offset

    def truncate_to(self, offset: int) -> None:
        """Nothing stands at or after `offset` any more."""
        assert self.start_offset <= offset <= self.end_offset
        self.end_offset = offset
        while self.epochs and self.epochs[-1][1] >= offset:
            self.epochs.pop()

    def end_of(self, epoch: int) -> tuple[int, int]:
        """The highest epoch not above `epoch` that wrote here, and the offset where it ends: the next one's start.

        (0, start of the log) where every record is of a higher epoch.
        """
        end = self.end_offset
        for known, first in reversed(self.epochs):
            if known <= epoch:
                return known, end
            end = first
        return 0, self.start_offset

    def agrees(self, offset: int, last_epoch: int) -> bool:
        """True when a log that ends at `offset` in a record of `last_epoch` is a prefix of this one (log matching)."""
        if offset == self.start_offset == 0:
            return True
        epoch, end = self.end_of(last_epoch)
        return epoch == last_epoch and offset <= end

    def truncation_target(self, epoch: int, end_offset: int) -> int:
        """Where to cut this log when the leader says that its `epoch` ends at `end_offset`.

        By epoch, never by the high watermark: cutting there can lose what was committed (KIP-101). Where this log lacks
        that epoch, cut at the end of the one before it and ask again (KIP-279).
        """
        known, end = self.end_of(epoch)
        return min(end, end_offset) if known == epoch else end
