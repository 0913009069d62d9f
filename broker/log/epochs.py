"""Keeps the start offset of each leader epoch (mechanisms E1, E2; KIP-101, KIP-279)."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from squall.broker.env import Fs
from squall.broker.log import checkpoints
from squall.broker.log.checkpoints import EpochEntry

UNDEFINED = (-1, -1)
_epoch = attrgetter("epoch")
_start = attrgetter("start_offset")


class EpochCache:
    """Entries, their epochs and starts both strictly ascending, and the file `leader-epoch-checkpoint` that keeps them.

    Changes are made in memory and mark the cache `dirty`. The log flushes it before the next append: until then every
    difference from the file concerns offsets at or beyond the log's end, which loading cuts off anyway. So a new leader
    epoch costs no fsync before something is written in it.
    """

    __slots__ = ("_fs", "_path", "dirty", "entries", "latest")

    def __init__(self, fs: Fs, directory: str, entries: list[EpochEntry] | None = None) -> None:
        self._fs = fs
        self._path = f"{directory}/{checkpoints.LEADER_EPOCHS}"
        self.entries: list[EpochEntry] = entries or []
        self.latest: int | None = None
        """The epoch of the last entry."""
        self.dirty = False
        """True where the file does not yet say what the memory does."""
        self._changed(dirty=False)

    @classmethod
    def load(cls, fs: Fs, directory: str) -> EpochCache | None:
        """Load the file; None where it is missing or damaged, so that the caller rebuilds it from the batches."""
        entries = checkpoints.read_epochs(fs, f"{directory}/{checkpoints.LEADER_EPOCHS}")
        return None if entries is None else cls(fs, directory, entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """The batches from `start_offset` on are of `epoch`. True if that is news.

        Entries that contradict it go: those from `start_offset` on, and those of a higher epoch. An entry of the same
        epoch that begins earlier stays, also under a leadership of ours that wrote nothing.
        """
        entries = self.entries
        if epoch == self.latest and start_offset >= entries[-1].start_offset:
            return False
        while entries and (entries[-1].start_offset >= start_offset or entries[-1].epoch > epoch):
            entries.pop()
        if not entries or entries[-1].epoch != epoch:
            assert not entries or entries[-1].epoch < epoch
            assert not entries or entries[-1].start_offset < start_offset
            entries.append(EpochEntry(epoch, start_offset))
        self._changed()
        assert self.latest == epoch
        assert self.dirty
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch here that is not above `epoch`, and where it ends: (epoch, end offset exclusive).

        (-1, -1) where that is not known: no entries, or `epoch` above all. An epoch below all: itself, and the first
        entry's start, since nothing of it can be here (KAFKA-6857 tells why not the log's end).
        """
        entries = self.entries
        if self.latest is None or epoch < 0 or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            # It is still being written, or nothing came after it: it ends where the log does.
            return epoch, log_end_offset
        following = bisect_right(entries, epoch, key=_epoch)
        assert following < len(entries)
        if following == 0:
            return epoch, entries[0].start_offset
        return entries[following - 1].epoch, entries[following].start_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch that the batch at `offset` has, or would have; None before the first entry."""
        at = bisect_right(self.entries, offset, key=_start)
        return self.entries[at - 1].epoch if at else None

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends at `end_offset` now: forget the epochs that begin there or later."""
        entries = self.entries
        # An epoch that begins right at the end has no batch here any more.
        if entries and entries[-1].start_offset >= end_offset:
            while entries and entries[-1].start_offset >= end_offset:
                entries.pop()
            self._changed()
        assert not entries or entries[-1].start_offset < end_offset
        assert self.latest == (entries[-1].epoch if entries else None)

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins at `start_offset` now: the epoch in force there begins there."""
        following = bisect_right(self.entries, start_offset, key=_start)
        if following and self.entries[following - 1].start_offset != start_offset:
            self.entries[:following] = [EpochEntry(self.entries[following - 1].epoch, start_offset)]
            self._changed()
        elif following > 1:
            del self.entries[: following - 1]
            self._changed()
        assert not self.entries or self.entries[0].start_offset >= start_offset

    def clear(self) -> None:
        """Forget all."""
        self.entries.clear()
        self._changed()

    def must_be_written(self, epoch: int) -> bool:
        """Return whether an append in `epoch` has to wait for the file."""
        return self.dirty or epoch != self.latest

    def flush(self) -> None:
        """Make the file say what the memory does, durably. OSError leaves the cache dirty."""
        # Synced (KAFKA-16541), and before the append: in the background, an older list took the place of a newer one
        # (KAFKA-17142). After a crash the epochs would not be those of the batches.
        checkpoints.write_epochs(self._fs, self._path, self.entries)
        self.dirty = False

    def _changed(self, *, dirty: bool = True) -> None:
        self.latest = self.entries[-1].epoch if self.entries else None
        self.dirty = self.dirty or dirty
