"""Keeps the start offset of each leader epoch in a log (mechanisms E1 and E2 in docs/mechanisms.md; KIP-101, KIP-279).
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from squall.broker.env import Fs
from squall.broker.log import checkpoints
from squall.broker.log.checkpoints import EpochEntry

UNDEFINED = (-1, -1)
TRACED = 16
"""Limits how many epochs of a log a trace has, because a long log may have very many."""
_epoch = attrgetter("epoch")
_start = attrgetter("start_offset")


class EpochCache:
    """Holds a log's leader epochs with their start offsets, both strictly ascending, as in `leader-epoch-checkpoint`.

    Changes are made in memory and set `dirty`; the log writes the file before its next append. Until then memory and
    file differ only in entries that start at or beyond the log's end, and loading the log removes such entries. So a
    new leader epoch costs no fsync before the first append in that epoch.
    """

    __slots__ = ("_fs", "_path", "dirty", "entries", "latest")

    def __init__(self, fs: Fs, directory: str, entries: list[EpochEntry] | None = None) -> None:
        self._fs = fs
        self._path = f"{directory}/{checkpoints.LEADER_EPOCHS}"
        self.entries: list[EpochEntry] = entries or []
        self.latest: int | None = None
        """Holds the epoch of the last entry, or None if there is no entry."""
        self.dirty = False
        """Is True if memory has entries that differ from the file."""
        self._changed(dirty=False)

    @classmethod
    def load(cls, fs: Fs, directory: str) -> EpochCache | None:
        """Load the checkpoint file. Returns None if the file is missing or damaged: the caller then rebuilds it from
        the batches.
        """
        entries = checkpoints.read_epochs(fs, f"{directory}/{checkpoints.LEADER_EPOCHS}")
        return None if entries is None else cls(fs, directory, entries)

    def newest(self) -> list[EpochEntry]:
        """Return the newest entries, at most `TRACED`, for a trace."""
        return self.entries[-TRACED:]

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that the batches from `start_offset` on have `epoch`. Returns whether that changed the entries.

        Removes the entries that contradict this: those from `start_offset` on and those of a higher epoch. An entry of
        the same epoch with an earlier start stays, even if this broker led in that epoch and wrote nothing.
        """
        assert epoch >= 0
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
        """Return the largest known epoch that is at most `epoch`, and the exclusive end offset of that epoch.

        Returns (-1, -1) if there are no entries or `epoch` is above all of them. If `epoch` is below all entries,
        returns `epoch` and the start of the first entry, since this log has no record of it (not the log's end:
        KAFKA-6857).
        """
        entries = self.entries
        if self.latest is None or epoch < 0 or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            # The epoch is the newest, so it ends at the log's end.
            return epoch, log_end_offset
        following = bisect_right(entries, epoch, key=_epoch)
        assert following < len(entries)
        if following == 0:
            return epoch, entries[0].start_offset
        assert entries[following - 1].epoch <= epoch
        return entries[following - 1].epoch, entries[following].start_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch that a batch at `offset` has or would have; None before the first entry."""
        at = bisect_right(self.entries, offset, key=_start)
        assert at == 0 or self.entries[at - 1].start_offset <= offset
        assert at == len(self.entries) or offset < self.entries[at].start_offset
        return self.entries[at - 1].epoch if at else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or after `end_offset`, the log's new end."""
        assert end_offset >= 0
        entries = self.entries
        # An epoch that begins at the end has no batch in this log any more.
        if entries and entries[-1].start_offset >= end_offset:
            while entries and entries[-1].start_offset >= end_offset:
                entries.pop()
            self._changed()
        assert not entries or entries[-1].start_offset < end_offset
        assert self.latest == (entries[-1].epoch if entries else None)

    def truncate_from_start(self, start_offset: int) -> None:
        """Let the epochs begin at `start_offset`, the log's new start: the epoch of that offset then starts there."""
        following = bisect_right(self.entries, start_offset, key=_start)
        if following and self.entries[following - 1].start_offset != start_offset:
            self.entries[:following] = [EpochEntry(self.entries[following - 1].epoch, start_offset)]
            self._changed()
        elif following > 1:
            del self.entries[: following - 1]
            self._changed()
        assert not self.entries or self.entries[0].start_offset >= start_offset
        assert len(self.entries) < 2 or self.entries[0].start_offset < self.entries[1].start_offset
        assert self.latest == (self.entries[-1].epoch if self.entries else None)

    def clear(self) -> None:
        """Remove all epochs."""
        self.entries.clear()
        self._changed()
        assert self.latest is None

    def must_be_written(self, epoch: int) -> bool:
        """Return whether the file must be written before an append in `epoch`."""
        return self.dirty or epoch != self.latest

    def flush(self) -> None:
        """Write the entries to the file durably. If that raises OSError, the cache stays dirty."""
        # Synced (KAFKA-16541), and before the append: in the background, an older list took the place of a newer one
        # (KAFKA-17142). After a crash the epochs would not be those of the batches.
        checkpoints.write_epochs(self._fs, self._path, self.entries)
        self.dirty = False

    def _changed(self, *, dirty: bool = True) -> None:
        self.latest = self.entries[-1].epoch if self.entries else None
        self.dirty = self.dirty or dirty
