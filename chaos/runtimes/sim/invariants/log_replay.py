"""Rebuilds the state of producers and transactions from the batches of one log alone.

It does not use the broker's replay code, on purpose: a mistake in it must not be repeated here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from squall.broker.protocol.records import CONTROL_BIT, TRANSACTIONAL_BIT
from squall.chaos.runtimes.sim.invariants.headers import BatchIdentity

WINDOW: Final = 5
"""Is how many of a producer's newest batches a log recognises as duplicates: Kafka's
ProducerStateEntry.NUM_BATCHES_TO_RETAIN.
"""
SEQUENCES: Final = 2**31
"""Is the number of sequences: a sequence wraps from SEQUENCES - 1 to 0."""
NONE: Final = -1
_new = tuple.__new__
"""Makes a named tuple without its constructor, in half the time: one is made for each batch."""


class ReplayedBatch(NamedTuple):
    """Holds the first and last sequence, and the first and last offset, of a producer's batch."""

    first_sequence: int
    last_sequence: int
    base: int
    last: int


class ProducerReplay(NamedTuple):
    """Holds the state of one producer id that follows from the batches of a log."""

    epoch: int
    expected: int
    """Is the sequence number that the producer's next batch must have."""
    window: tuple[ReplayedBatch, ...]
    """Lists the producer's newest batches in this epoch, at most five."""
    coordinator_epoch: int
    """Is the epoch of the coordinator that wrote the last marker; -1 before the first marker."""
    first: int
    """Is the first offset of the open transaction; -1 if none is open."""


class CompletedTxn(NamedTuple):
    """Describes a transaction that a marker at offset `last` has ended. All fields are offsets of the log."""

    producer_id: int
    first: int
    last: int
    stable: int
    """Is the last stable offset once everything up to the marker is committed."""


class WrittenMarker(NamedTuple):
    """Holds a marker, and the state of its producer before the marker."""

    batch: BatchIdentity
    before: ProducerReplay | None


@dataclass(slots=True)
class _ProducerState:
    epoch: int
    expected: int = 0
    window: deque[ReplayedBatch] = field(default_factory=lambda: deque(maxlen=WINDOW))
    coordinator_epoch: int = NONE
    first: int = NONE

    def in_epoch(self, epoch: int) -> None:
        """Begin a producer epoch, unless it is the present one: sequences restart at 0, and batches of the epoch before
        no longer count as duplicates.
        """
        if epoch != self.epoch:
            self.epoch, self.expected = epoch, 0
            self.window.clear()

    @property
    def known(self) -> ProducerReplay:
        return _new(ProducerReplay, (self.epoch, self.expected, tuple(self.window), self.coordinator_epoch, self.first))


class LogReplay:
    """Replays the batches of one log, and holds the producers and transactions that result."""

    __slots__ = ("_producers", "aborted", "ended", "news", "open", "opened", "start", "changed_ids")

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self._producers: dict[int, _ProducerState] = {}
        self.open: dict[int, int] = {}
        """Maps the first offset of an open transaction to its producer id, in order."""
        self.ended: list[CompletedTxn] = []
        """Lists the ended transactions in the order of their markers."""
        self.aborted: list[CompletedTxn] = []
        """Lists the ended transactions that were aborted."""
        self.changed_ids: dict[int, None] = {}
        """Holds the producer ids of replayed batches that are not checked yet."""
        self.news: list[WrittenMarker] = []
        """Lists the replayed markers that are not checked yet."""
        self.opened: list[tuple[int, int]] = []
        """Lists (producer id, epoch) of the transactions that began in replayed batches and are not checked yet."""

    def __len__(self) -> int:
        """Return the number of producers."""
        return len(self._producers)

    def sender(self, producer_id: int) -> ProducerReplay | None:
        """Return the state of a producer id; None if there is none."""
        found = self._producers.get(producer_id)
        return None if found is None else found.known

    def senders(self) -> dict[int, ProducerReplay]:
        """Return the state of every producer id."""
        return {producer_id: found.known for producer_id, found in self._producers.items()}

    def take(self, batches: Iterable[BatchIdentity]) -> None:
        """Replay more batches of the log."""
        for batch in batches:
            if batch.producer_id >= 0:
                self.changed_ids[batch.producer_id] = None
                if not batch.attributes & CONTROL_BIT:
                    self._sent(batch)
                elif batch.marker is not None:
                    self._marked(batch)

    def _sent(self, batch: BatchIdentity) -> None:
        found = self._producers.get(batch.producer_id)
        if found is None:
            found = self._producers[batch.producer_id] = _ProducerState(batch.producer_epoch)
        elif found.epoch != batch.producer_epoch:
            found.in_epoch(batch.producer_epoch)
        if batch.sequence >= 0:  # offsets that a group's coordinator writes for a producer have none
            last = (batch.sequence + batch.end - batch.base - 1) % SEQUENCES
            found.expected = (last + 1) % SEQUENCES
            found.window.append(_new(ReplayedBatch, (batch.sequence, last, batch.base, batch.end - 1)))
        if found.first < 0 and batch.attributes & TRANSACTIONAL_BIT:
            found.first = batch.base
            self.open[batch.base] = batch.producer_id
            self.opened.append((batch.producer_id, batch.producer_epoch))

    def _marked(self, batch: BatchIdentity) -> None:
        marker, found = batch.marker, self._producers.get(batch.producer_id)
        assert marker is not None
        self.news.append(WrittenMarker(batch, None if found is None else found.known))
        if found is None:
            found = self._producers[batch.producer_id] = _ProducerState(batch.producer_epoch)
        # A marker may carry a newer producer epoch: an abort that fences a producer, or any marker since KIP-890.
        found.in_epoch(batch.producer_epoch)
        found.coordinator_epoch = marker.coordinator_epoch
        if found.first < 0:
            return
        del self.open[found.first]
        # With this transaction ended, the last stable offset is the first offset of the oldest one that is still open.
        ended = CompletedTxn(batch.producer_id, found.first, batch.base, next(iter(self.open), batch.end))
        found.first = NONE
        self.ended.append(ended)
        if not marker.commit:
            self.aborted.append(ended)

    def stable_offset(self, high_watermark: int, committed: int) -> int:
        """Return the last stable offset: the high watermark, or, if that is lower, the first offset of the first
        transaction that is open or whose marker is not committed. `committed`: the exclusive end of the committed
        offsets.
        """
        stable = min(high_watermark, next(iter(self.open), high_watermark))
        for ended in reversed(self.ended):
            if ended.last < committed:
                break
            stable = min(stable, ended.first)
        return stable
