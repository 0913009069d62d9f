"""Defines the rules of idempotence and transactions in one log, as methods that change nothing.

Each rule is one method, so that a planted bug (`chaos/mutants`) can replace exactly one rule. There are two transaction
versions (KIP-890): with version 1 a producer keeps its epoch from one transaction to the next; with version 2 every end
of a transaction raises the producer's epoch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from squall.broker.log.markers import TxnMarker
from squall.broker.protocol.records import SEQUENCE_MASK, TRANSACTIONAL_BIT, BatchHeader

WINDOW = 5
"""Limits the newest batches per producer that are remembered to recognize duplicates: clients have at most 5 batches in
flight.
"""
EPOCH_RAISED_BY_END = 2
"""Is the transaction.version from which on the end of a transaction raises the producer's epoch (KIP-890, part 2)."""


class BatchMetadata(NamedTuple):
    """Describes a producer's batch in the log by its sequences, offsets and timestamp."""

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
        """Holds the newest batches of this epoch, at most WINDOW, the newest last. It is no deque, because an empty
        deque takes 760 bytes, and a coordinator's markers create an entry in every partition of a transaction, with or
        without batches.
        """
        self.next_sequence = 0
        self.timestamp = -1
        """Gives the largest timestamp (ms) of the last batch or marker, from which the age of the entry is counted."""
        self.coordinator_epoch = -1
        """Gives the epoch of the coordinator that wrote the last marker; -1 before the first marker."""
        self.txn_first_offset = -1
        """Gives the first offset of the open transaction; -1 if no transaction is open."""

    def restart(self, epoch: int) -> None:
        """Begin a new producer epoch: sequences begin at 0, and older batches no longer count as duplicates."""
        assert epoch != self.epoch
        self.epoch = epoch
        self.window.clear()
        self.next_sequence = 0

    def remember(self, sent: BatchMetadata) -> None:
        """Add an appended batch to `window`, where duplicates are looked up. Drops the oldest batch beyond WINDOW."""
        self.window.append(sent)
        if len(self.window) > WINDOW:
            del self.window[0]
        assert len(self.window) <= WINDOW


class EndedTxn(NamedTuple):
    """Describes a transaction that the marker at `last_offset` has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class VerificationStateEntry:
    """Tracks a question to the transaction coordinator: is this partition part of a producer's transaction? `agreed` is
    True once the coordinator has confirmed this.

    A marker that ends the transaction removes the entry. An answer that arrives after the marker is ignored (KIP-890,
    part 1).
    """

    __slots__ = ("agreed", "epoch", "lowest_sequence", "raises_epoch", "wall_ms")

    def __init__(self, epoch: int, lowest_sequence: int, raises_epoch: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        """Gives the smallest first sequence of the batches that wait for the coordinator's answer."""
        self.raises_epoch = raises_epoch
        """Is True for a producer with transaction version 2, whose transactions each have their own epoch."""
        self.agreed = False
        self.wall_ms = 0
        """Gives the time at which the coordinator was last asked, in wall-clock ms."""


class ProducerRules:
    """Decides which batches and markers one log accepts, and up to where readers of committed data may read."""

    __slots__ = ()

    # ------------------------------------------------------------------------------------------------------- batches

    def is_fenced(self, entry: ProducerStateEntry, epoch: int) -> bool:
        """Return whether this log has records of a higher producer epoch, which fences `epoch`."""
        return epoch < entry.epoch

    def known_batch(self, entry: ProducerStateEntry, header: BatchHeader) -> BatchMetadata | None:
        """Return the batch in the log that this batch repeats, or None. Only batches of the same epoch are compared,
        because a new epoch begins its sequences at 0 (redpanda 5026).
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
        """Return the first sequence that the producer's next batch must have."""
        assert epoch >= entry.epoch
        return 0 if epoch > entry.epoch else entry.next_sequence

    def begins_too_late(self, verification: VerificationStateEntry | None, first_sequence: int) -> bool:
        """Return whether a producer's first batch in this log has a too large sequence, because earlier batches have
        not arrived yet. If it were appended, the earlier batches would be out of order for ever (KAFKA-14904).

        With transaction version 2 the first sequence must be 0. With version 1 it must be the smallest first sequence
        of the batches that wait for verification.
        """
        if verification is None:
            return False
        return first_sequence > (0 if verification.raises_epoch else verification.lowest_sequence)

    def leaves_transaction(self, entry: ProducerStateEntry, header: BatchHeader) -> bool:
        """Return whether a batch is not transactional although its producer has an open transaction in this log."""
        return entry.txn_first_offset >= 0 and not header.attributes & TRANSACTIONAL_BIT

    def is_ongoing(self, entry: ProducerStateEntry | None, epoch: int) -> bool:
        """Return whether a transaction of this epoch is open in this log, so its coordinator knows the partition."""
        return entry is not None and entry.txn_first_offset >= 0 and entry.epoch == epoch

    def is_voided(self, asked: VerificationStateEntry, marker_epoch: int, transaction_version: int) -> bool:
        """Return whether a marker ends the transaction of the verification `asked`, which must then be removed.

        With transaction version 1 the marker has the epoch of the transaction that it ends. With version 2 its epoch is
        one higher: a verification of the same epoch belongs to the next transaction and stays. A producer may verify
        with version 2 and end the transaction with version 1; the marker's `transaction_version` is then 1.
        """
        of_next = asked.raises_epoch and transaction_version >= EPOCH_RAISED_BY_END
        return asked.epoch < marker_epoch or (asked.epoch == marker_epoch and not of_next)

    def is_verified(self, asked: VerificationStateEntry | None, epoch: int) -> bool:
        """Return whether the coordinator has agreed that a transaction of this epoch may begin here."""
        return asked is not None and asked.agreed and asked.epoch == epoch

    # ------------------------------------------------------------------------------------------------------- markers

    def is_marker_late(self, entry: ProducerStateEntry, epoch: int, transaction_version: int) -> bool:
        """Return whether a marker comes too late: this log has a newer epoch of its producer.

        With transaction version 2 a marker has a higher epoch than the transaction that it ends. So a marker with the
        log's own epoch is late, too: it was meant for the previous transaction (KIP-1228).
        """
        if transaction_version >= EPOCH_RAISED_BY_END:
            return epoch <= entry.epoch
        return epoch < entry.epoch

    def is_marker_repeated(
        self, entry: ProducerStateEntry, epoch: int, marker: TxnMarker, transaction_version: int
    ) -> bool:
        """Return whether the log already has this marker. The coordinator repeats a marker if the response got lost,
        and the repetition is acknowledged without an append (KAFKA-19999).

        A repetition has the producer epoch of the log, and finds no open transaction. With transaction version 1 the
        coordinator epoch must be equal, too: a marker of a newer coordinator is appended, because it fences the older
        one.
        """
        if entry.txn_first_offset >= 0 or epoch != entry.epoch:
            return False
        if transaction_version >= EPOCH_RAISED_BY_END:
            return marker.coordinator_epoch >= entry.coordinator_epoch
        return marker.coordinator_epoch == entry.coordinator_epoch

    def is_coordinator_fenced(self, entry: ProducerStateEntry, marker: TxnMarker) -> bool:
        """Return whether a newer coordinator of the transactional id has written here, so that this marker's sender is
        a zombie.
        """
        return marker.coordinator_epoch < entry.coordinator_epoch

    # ------------------------------------------------------------------------------------------------ stable offsets

    def is_undecided(self, ended: EndedTxn, high_watermark: int) -> bool:
        """Return whether an ended transaction still holds back the last stable offset, because its marker is not below
        the high watermark yet. A new leader may lack that marker, and consumers must not have read beyond that leader's
        last stable offset.
        """
        return ended.last_offset >= high_watermark

    def oldest_unstable(self, ongoing: Iterable[int], undecided: Iterable[EndedTxn]) -> int | None:
        """Return the first offset of the oldest transaction that is open or whose marker is not committed; None if
        there is none.
        """
        first = next(iter(ongoing), None)
        for ended in undecided:
            if first is None or ended.first_offset < first:
                first = ended.first_offset
        return first

    # -------------------------------------------------------------------------------------------------------- expiry

    def may_forget(self, entry: ProducerStateEntry, wall_ms: int, after_ms: int) -> bool:
        """Return whether a producer's state has expired: no open transaction, and last batch or marker at least
        `after_ms` ago.
        """
        return entry.txn_first_offset < 0 and wall_ms - entry.timestamp >= after_ms
