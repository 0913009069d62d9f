"""Holds the batches of each replica's log, and how far they equal the committed batches of the partition (the
"ledger").
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from squall.chaos.runtimes.sim.invariants.group_journal import GroupJournal
from squall.chaos.runtimes.sim.invariants.headers import BatchIdentity, read
from squall.chaos.runtimes.sim.invariants.log_replay import LogReplay
from squall.chaos.runtimes.sim.invariants.transaction_journal import TransactionJournal


class BatchInLog(NamedTuple):
    """Represents a batch and its predecessor in one log."""

    batch: BatchIdentity
    previous: BatchIdentity | None
    """Is the batch right before `batch` in the log; None if `batch` is the log's first."""


NO_BATCHES: Final[tuple[BatchIdentity, ...]] = ()
_end = attrgetter("end")


class CommittedBatches:
    """Lists the committed batches of a partition (the "ledger"), in order, without gaps: some leader's high watermark
    has passed each of them. Its attributes may be read directly, and are changed by its methods only.
    """

    __slots__ = ("bases", "batches", "changes", "end", "low", "start")

    def __init__(self, batches: tuple[BatchIdentity, ...] = NO_BATCHES) -> None:
        self.batches: list[BatchIdentity] = []
        self.bases: list[int] = []
        self.start = batches[0].base if batches else 0
        """Is the base offset of the first batch in this list; 0 until a batch is added."""
        self.end = self.start
        """Is the exclusive end: all offsets before it are committed."""
        self.low = 0
        """Is the offset before which everything was deleted on purpose, by retention or DeleteRecords: the largest log
        start of any leader. A follower's log start counts, too, but only up to the offset before which the follower
        held all committed records.
        """
        self.changes = 0
        """Counts the changes of this object. Code that has seen the same count before need not compare again."""
        for batch in batches:
            self.add(batch)

    def add(self, batch: BatchIdentity) -> None:
        """Append a batch that has become committed."""
        if not self.batches:
            self.start = batch.base
        self.batches.append(batch)
        self.bases.append(batch.base)
        self.end = batch.end
        self.changes += 1

    def deleted(self, offset: int) -> None:
        """Note that everything before `offset` was deleted on purpose."""
        if offset > self.low:
            self.low = offset
            self.changes += 1

    def index(self, offset: int) -> int:
        """Return the index of the batch that contains `offset`. Returns -1 if the offset is before the first batch, and
        the number of batches if it is after the last batch.
        """
        if offset >= self.end:
            return len(self.batches)
        return bisect_right(self.bases, offset) - 1

    def at(self, offset: int) -> BatchIdentity | None:
        """Return the committed batch that contains `offset`; None if there is none."""
        return self.batches[self.index(offset)] if self.start <= offset < self.end else None

    def cut(self, offset: int) -> None:
        """Remove the batches that end after `offset`, because the configuration permitted their loss, for example by an
        unclean election.
        """
        while self.batches and self.batches[-1].end > offset:
            self.batches.pop()
            self.bases.pop()
        self.end = self.batches[-1].end if self.batches else self.start
        self.low = min(self.low, self.end)
        self.changes += 1

    def compare(self, copies: Iterable[LogCopy]) -> None:
        """Update how far each of these logs equals the committed batches. A log is compared only if it or the committed
        batches have changed since its last comparison.
        """
        changes = self.changes
        for copy in copies:
            if copy.compared != changes:
                copy.compare(self)


AnyJournal = TransactionJournal | GroupJournal | None
"""Is the object that replays the records of a coordinators' log (__consumer_offsets or __transaction_state); None for
the log of any other topic.
"""


class LogCopy:
    """Represents the checker's copy of one replica's log: its batches, and how far they equal the committed batches.
    Its batches may be changed by its methods only, which know what must be compared again.
    """

    __slots__ = (
        "_shift",
        "batches",
        "compared",
        "end",
        "generation",
        "journal",
        "low",
        "matched",
        "position",
        "replay",
        "same",
        "segment",
        "start",
    )

    def __init__(
        self, start: int = 0, batches: tuple[BatchIdentity, ...] = NO_BATCHES, journal: AnyJournal = None
    ) -> None:
        """Start with these batches. `journal`: replays the records, if the log is a coordinators' log."""
        self.batches = list(batches)
        self.start = batches[0].base if batches else start
        """Is the base offset of the first batch, or the offset at which the first batch would be."""
        self.end = batches[-1].end if batches else start
        """Is the exclusive end of the last batch."""
        self.low = start
        """Is the log's start: offsets before it have been deleted, whether or not their bytes are still there."""
        self.matched = self.start
        """Is the offset up to which this log equals the committed batches, apart from batches that were deleted. At
        most the end of the committed batches.
        """
        self.same = 0
        """Is the number of this log's batches before the offset `matched`. Each of them equals a committed batch, or
        was deleted and is not compared.
        """
        self.compared = -1
        """Is the value that `CommittedBatches.changes` had at the last comparison; -1 if this log has grown since."""
        self._shift: int | None = None
        """Is added to a batch's index in this log to get the index of the committed batch to compare it with. Example:
        3 if the first batch of this log is the fourth committed one. Valid from index `same` on, because earlier
        batches are compared already. None while there is nothing to compare.
        """
        self.generation = 0
        self.segment, self.position = -1, 0
        """Say up to where the log's files have been read: the base offset of a segment, and a byte position in it."""
        self.replay = LogReplay(self.start)
        """Holds the state of the producers and of their transactions after the batches of this log."""
        self.replay.take(self.batches)
        self.journal = journal

    def between(self, offset: int, end: int) -> Iterator[BatchIdentity]:
        """Yield the batches of this log that have records in [offset, end)."""
        for at in range(bisect_right(self.batches, offset, key=_end), len(self.batches)):
            if self.batches[at].base >= end:
                return
            yield self.batches[at]

    def at(self, offset: int) -> BatchIdentity | None:
        """Return this log's batch that contains `offset`; None if there is none."""
        at = bisect_right(self.batches, offset, key=_end)
        return self.batches[at] if at < len(self.batches) and self.batches[at].base <= offset else None

    def newest(self, count: int) -> Iterator[BatchInLog]:
        """Yield the last `count` batches, each with the batch before it."""
        batches = self.batches
        for at in range(len(batches) - count, len(batches)):
            yield tuple.__new__(BatchInLog, (batches[at], batches[at - 1] if at else None))

    def add(self, batches: Sequence[BatchIdentity]) -> None:
        """Append batches at the end of this log."""
        if batches:
            self.batches += batches
            self.end = batches[-1].end
            self.compared = -1
            self.replay.take(batches)

    def begin(self, start: int) -> None:
        """Forget all batches, because the log is read again from its first segment, which begins at `start`."""
        self.batches = []
        self.start = self.end = self.matched = start
        self.same, self._shift, self.compared = 0, None, -1
        self.segment, self.position = start, 0
        self.replay = LogReplay(start)
        if self.journal is not None:
            self.journal.begin()

    def compare(self, ledger: CommittedBatches) -> int:
        """Update `matched` after batches were added to this log or to the committed batches (`ledger`), and return it.

        Batches wholly below `ledger.low` are skipped: they may differ from the committed ones. The reason: if an epoch
        ends before the leader's log start, the leader answers OffsetForLeaderEpoch with its log start, as Kafka does.
        So a follower does not truncate its own older batches of that epoch. They remain until its log start is beyond
        them, and in its files until the segment is deleted.
        """
        if self.compared == ledger.changes:
            return self.matched
        batches, committed, same, shift = self.batches, ledger.batches, self.same, self._shift
        self.compared = ledger.changes
        if shift is None:
            if not batches or not committed or batches[0].base >= ledger.end:
                self.matched = min(max(self.start, ledger.start), max(ledger.end, self.start))
                return self.matched
            shift = self._shift = self._align(ledger)
        low = ledger.low if ledger.low < ledger.end else ledger.end
        while True:
            while same < len(batches) and same + shift < len(committed) and batches[same] == committed[same + shift]:
                same += 1
            if same == len(batches) or batches[same].end > low:
                break
            # Batches below `low` may differ: skip them, and align again behind them.
            same = bisect_right(batches, low, lo=same, key=_end)
            behind = self.end if same == len(batches) else batches[same].base
            shift = self._shift = ledger.index(behind) - same
        if same != self.same:
            self.same = same
            self.matched = batches[same - 1].end
        return self.matched

    def _align(self, ledger: CommittedBatches) -> int:
        at = ledger.index(max(self.batches[0].base, ledger.start))
        if self.batches[0].base < ledger.start:
            # Older than what is known: nothing to compare it with.
            self.same = bisect_right([batch.base for batch in self.batches], ledger.start) - 1
            return at - self.same
        return at

    def first_difference(self, ledger: CommittedBatches) -> tuple[BatchIdentity | None, BatchIdentity | None]:
        """Return this log's first batch that differs from the committed batches (`ledger`), and the committed batch at
        that offset. Either is None if there is none.
        """
        mine = self.batches[self.same] if self.same < len(self.batches) else None
        return mine, ledger.at(self.matched)

    def ledger_was_cut(self, ledger: CommittedBatches) -> None:
        """Compare all batches with the committed batches (`ledger`) again, because `CommittedBatches.cut` has removed
        some of these.
        """
        self.same, self._shift, self.matched, self.compared = 0, None, self.start, -1
        self.compare(ledger)


def are_alike(one: LogCopy, other: LogCopy, end: int) -> bool:
    """Return whether two logs hold the same batches before `end`. Batches before the `matched` offset of both logs are
    not compared again, so each log must have been compared with the committed batches before.
    """
    known = min(one.matched, other.matched)
    if end <= known:
        return True
    if one.end < end or other.end < end:
        return False
    mine = bisect_right(one.batches, known, key=_end)
    its = bisect_right(other.batches, known, key=_end)
    return _until(one.batches, mine, end) == _until(other.batches, its, end)


def _until(batches: Sequence[BatchIdentity], first: int, end: int) -> Sequence[BatchIdentity]:
    last = first
    while last < len(batches) and batches[last].base < end:
        last += 1
    return batches[first:last]


__all__ = ["NO_BATCHES", "BatchIdentity", "LogCopy", "CommittedBatches", "BatchInLog", "are_alike", "read"]
