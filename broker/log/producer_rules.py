"""The rules of idempotence and transactions in one log, one method each. None of them changes anything.

They are methods so that a planted bug can replace exactly one, as with `squall.broker.replication.rules`. Transactions
come in two generations (KIP-890): in the first one a producer keeps its epoch from one transaction to the next, in the
second one every end of a transaction raises it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from squall.broker.log.markers import TxnMarker
from squall.broker.protocol.records import SEQUENCE_MASK, TRANSACTIONAL_BIT, BatchHeader

WINDOW = 5
"""Newest batches of a producer that are known again when they come once more: clients keep at most 5 in flight."""
EPOCH_RAISED_BY_END = 2
"""transaction.version from which the end of each transaction raises the producer's epoch (KIP-890, part 2)."""


class BatchMetadata(NamedTuple):
    """A batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerStateEntry:
    """Holds one producer id's state in one log."""

    __slots__ = ("coordinator_epoch", "epoch", "next_sequence", "timestamp", "txn_first_offset", "window")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.window: list[BatchMetadata] = []
        """The newest batches of this epoch, at most WINDOW, the newest last. No deque: an empty one takes 760 bytes,
        and a coordinator's markers make a producer known in every partition of a transaction, batches or none.
        """
        self.next_sequence = 0
        self.timestamp = -1
        """Largest timestamp of the last batch or marker, ms: how old the state is."""
        self.coordinator_epoch = -1
        """Of the coordinator that wrote the last marker; -1 before the first one."""
        self.txn_first_offset = -1
        """Where the open transaction begins; -1 where none is open."""

    def restart(self, epoch: int) -> None:
        """A new producer epoch: sequences begin anew and old batches are not duplicates."""
        assert epoch != self.epoch
        self.epoch = epoch
        self.window.clear()
        self.next_sequence = 0

    def remember(self, sent: BatchMetadata) -> None:
        """A batch came into the log: the oldest one is forgotten where WINDOW are known."""
        self.window.append(sent)
        if len(self.window) > WINDOW:
            del self.window[0]
        assert len(self.window) <= WINDOW


class EndedTxn(NamedTuple):
    """A transaction that ended at the marker `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class VerificationStateEntry:
    """A question to the coordinator: is this partition part of the producer's transaction?

    A marker takes the question away, answered or not, for it ends the transaction that the coordinator spoke of. An
    answer that comes later than the marker is of no use then (KIP-890, part 1).
    """

    __slots__ = ("agreed", "epoch", "lowest_sequence", "raises_epoch", "wall_ms")

    def __init__(self, epoch: int, lowest_sequence: int, raises_epoch: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        """The smallest first sequence of the batches that were held back for the answer."""
        self.raises_epoch = raises_epoch
        """True for a producer whose transactions each have an epoch of their own."""
        self.agreed = False
        self.wall_ms = 0
        """When it was asked last."""


class ProducerRules:
    """Decides what one log may take from a producer, and what it may let others see."""

    __slots__ = ()

    # ------------------------------------------------------------------------------------------------------- batches

    def is_fenced(self, entry: ProducerStateEntry, epoch: int) -> bool:
        """Return whether a newer incarnation of the producer, or its coordinator, has written here already."""
        return epoch < entry.epoch

    def known_batch(self, entry: ProducerStateEntry, header: BatchHeader) -> BatchMetadata | None:
        """The batch in the log of which this one is a repetition. Only batches of the same epoch are compared: a new
        epoch begins its sequences anew (redpanda 5026).
        """
        if header.producer_epoch != entry.epoch:
            return None
        first = header.base_sequence
        last = first + header.last_offset_delta & SEQUENCE_MASK
        for sent in entry.window:
            if sent.first_sequence == first and sent.last_sequence == last:
                return sent
        return None

    def expected_sequence(self, entry: ProducerStateEntry, epoch: int) -> int:
        """The first sequence of the next batch."""
        return 0 if epoch > entry.epoch else entry.next_sequence

    def begins_too_late(self, verification: VerificationStateEntry | None, first_sequence: int) -> bool:
        """Return whether the first batch of a producer that this log does not know is not its first one. A retried
        batch that overtook another would else make the other one out of order for ever (KAFKA-14904). Producers of
        the second generation always begin with 0.
        """
        if verification is None:
            return False
        return first_sequence > (0 if verification.raises_epoch else verification.lowest_sequence)

    def leaves_transaction(self, entry: ProducerStateEntry, header: BatchHeader) -> bool:
        """Return whether a plain batch comes from a producer with an open transaction here."""
        return entry.txn_first_offset >= 0 and not header.attributes & TRANSACTIONAL_BIT

    def is_ongoing(self, entry: ProducerStateEntry | None, epoch: int) -> bool:
        """Return whether a transaction of that epoch is open in this log: then the coordinator knows the partition."""
        return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch

    def is_voided(self, asked: VerificationStateEntry, marker_epoch: int, transaction_version: int) -> bool:
        """Return whether a marker ends the transaction that the coordinator was asked about. In the second generation a
        marker has the epoch of the transaction that follows, and says nothing of that one. A client may ask in the
        second generation and end in the first: then the marker is one of the first.
        """
        of_next = asked.raises_epoch and transaction_version >= EPOCH_RAISED_BY_END
        return asked.epoch < marker_epoch or (asked.epoch == marker_epoch and not of_next)

    def is_verified(self, asked: VerificationStateEntry | None, epoch: int) -> bool:
        """Return whether a transaction of that epoch may begin here: its coordinator has agreed."""
        return asked is not None and asked.agreed and asked.epoch == epoch

    # ------------------------------------------------------------------------------------------------------- markers

    def is_marker_late(self, entry: ProducerStateEntry, epoch: int, transaction_version: int) -> bool:
        """Return whether a marker is of an epoch that has passed here. In the second generation a marker's epoch is
        above that of the transaction it ends: one of the same epoch was meant for the transaction before (KIP-1228).
        """
        if transaction_version >= EPOCH_RAISED_BY_END:
            return epoch <= entry.epoch
        return epoch < entry.epoch

    def is_marker_repeated(
        self, entry: ProducerStateEntry, epoch: int, marker: TxnMarker, transaction_version: int
    ) -> bool:
        """Return whether this marker is in the log already and its answer was lost: it is answered as written
        (KAFKA-19999).

        In the first generation the epoch does not tell one transaction from the next, but without an open transaction
        there is nothing to end. A marker of a newer coordinator is written all the same: it fences the older one.
        """
        if entry.txn_first_offset >= 0 or epoch != entry.epoch:
            return False
        if transaction_version >= EPOCH_RAISED_BY_END:
            return marker.coordinator_epoch >= entry.coordinator_epoch
        return marker.coordinator_epoch == entry.coordinator_epoch

    def is_coordinator_fenced(self, entry: ProducerStateEntry, marker: TxnMarker) -> bool:
        """Return whether a newer coordinator of the transactional id has written here: this one is a zombie."""
        return marker.coordinator_epoch < entry.coordinator_epoch

    # ------------------------------------------------------------------------------------------------ stable offsets

    def is_undecided(self, ended: EndedTxn, high_watermark: int) -> bool:
        """Return whether an ended transaction still holds readers of committed data back: until its marker is committed
        too. A new leader may lack the marker, and readers must not have seen more than it knows.
        """
        return ended.last_offset >= high_watermark

    def oldest_unstable(self, ongoing: Iterable[int], undecided: Iterable[EndedTxn]) -> int | None:
        """The first offset of the oldest transaction that is open, or whose marker is not committed; None: no such."""
        first = next(iter(ongoing), None)
        for ended in undecided:
            if first is None or ended.first_offset < first:
                first = ended.first_offset
        return first

    # -------------------------------------------------------------------------------------------------------- expiry

    def may_forget(self, entry: ProducerStateEntry, wall_ms: int, after_ms: int) -> bool:
        """Return whether a producer's last batch or marker is so old that its state may go: never in a transaction."""
        return entry.txn_first_offset < 0 and wall_ms - entry.timestamp >= after_ms
