"""Decides the rules of transactions (mechanism P3 in docs/mechanisms.md), with one method for each rule. No rule
changes any state.

Each rule is one that some released broker once got wrong; its docstring says what the rule protects. The rules are
methods so that a planted bug can replace exactly one rule (`chaos/mutants`), and so that tests can call them directly.
"""

# While markers are being written every request of that transactional id is CONCURRENT_TRANSACTIONS, but EndTxn before
# version 5 and a verifying AddPartitionsToTxn, which check id and epoch first. After a fence of V2 the epoch before
# it may be claimed; that epoch follows from the record of the end or fence, so it survives a failover in Kafka's own
# format. Apache Kafka 4.3.1, asked in 17 states with 13 requests and each epoch, answers so
# (tests/support/transaction_answers.txt); of rules read from sources, 215 of 1,054 answers differed.

from __future__ import annotations

from squall.broker.coordinators.transactions.values import (
    AT_REST,
    MAX_EPOCH,
    NO_EPOCH,
    PREPARED,
    V2,
    EndTransaction,
    InitProducer,
    TransactionMetadata,
    TransactionSettings,
    TxnState,
)


class TransactionRules:
    """Holds every transactional id of one shard, with the rules over them. `TransactionCoordinatorShard` adds the
    methods that change them.
    """

    __slots__ = ("settings", "transactions")

    settings: TransactionSettings
    transactions: dict[str, TransactionMetadata]

    # ------------------------------------------------------------------------------------------------- producer epochs

    def first_epoch(self) -> int:
        """Return the first epoch of a new transactional id: 0 unless a setting overrides it."""
        assert 0 <= self.settings.first_epoch
        assert self.settings.first_epoch < MAX_EPOCH
        return self.settings.first_epoch

    def is_exhausted(self, epoch: int) -> bool:
        """Return whether the epochs of a producer id are used up: `epoch` is 32766, the highest that a client may get,
        or 32767, which is reserved for a fence.
        """
        return epoch >= MAX_EPOCH - 1

    def is_last_epoch(self, epoch: int) -> bool:
        """Return whether `epoch` is 32767, the highest epoch of a producer id. No client gets this epoch, because no
        higher epoch could fence the client.
        """
        return epoch >= MAX_EPOCH

    def fenced_epoch(self, transaction: TransactionMetadata) -> int:
        """Return the epoch with which the coordinator aborts the transaction of a fenced producer. It is the
        transaction's epoch plus one, for both transaction versions and for every attempt (KAFKA-19367, KAFKA-20090). A
        fence that could not be written has changed nothing, so a retry bumps to the same epoch (KAFKA-9666). A
        transaction in epoch 32767 is aborted in that epoch, because there is no higher one.
        """
        return transaction.epoch if self.is_last_epoch(transaction.epoch) else transaction.epoch + 1

    def epoch_of_end(self, transaction: TransactionMetadata, client_version: int) -> int:
        """Return the epoch of a prepared transaction. Transaction version 2 raises it with each transaction, so that
        late requests of this transaction do not count for the next transaction (KIP-890 part 2, KAFKA-17754).
        """
        return transaction.epoch + 1 if client_version >= V2 else transaction.epoch

    # --------------------------------------------------------------------------------------------------------- fencing

    def is_known_producer(self, transaction: TransactionMetadata, request: InitProducer) -> bool:
        """Return whether a producer that asks for a higher epoch is the producer of this transactional id (KIP-360). It
        is if it sends the current producer id. It also is if it sends the previous producer id with its highest usable
        epoch (32766), because the response with the current id may have got lost.
        """
        assert request.producer_id >= 0
        if request.producer_id == transaction.producer_id:
            return True
        return request.producer_id == transaction.previous_producer_id and self.is_exhausted(request.epoch)

    def is_fenced(self, transaction: TransactionMetadata, epoch: int) -> bool:
        """Return whether a request with this epoch comes from a producer that was replaced or never initialised."""
        return epoch != transaction.epoch

    def is_retry_of_overflow(self, transaction: TransactionMetadata, request: EndTransaction) -> bool:
        """Return whether an EndTxn of transaction version 2 repeats an EndTxn after which the producer id was replaced,
        because its epochs were used up. The client does not know the new id if the first response got lost.
        """
        # An id changes only at its last usable epoch, and the next id starts at 0.
        used_up = request.epoch == MAX_EPOCH - 1 and transaction.epoch == 0
        return used_up and transaction.previous_producer_id == request.producer_id

    def is_retry_of_end(self, transaction: TransactionMetadata, request: EndTransaction) -> bool:
        """Return whether an EndTxn of transaction version 2 repeats an EndTxn that took effect, but whose response got
        lost. Such a retry has the epoch before the bump, or the producer id whose epochs are used up.
        """
        assert request.client_version >= V2
        return self.is_retry_of_overflow(transaction, request) or transaction.epoch == request.epoch + 1

    def may_end(self, transaction: TransactionMetadata, request: EndTransaction) -> bool:
        """Return whether the epoch of an EndTxn (transaction version 2) is valid in the transaction's state; otherwise
        the request is fenced. Call it only while no markers of the transaction are pending.

        A completed transaction in epoch 32767, the highest, was ended by a fence, so no EndTxn is valid. If the fenced
        producer's EndTxn counted as a retry, the response would give epoch 32767 to this producer, whose next
        transaction could be neither ended nor fenced (KAFKA-20090).
        """
        assert transaction.state not in PREPARED
        retry, state = self.is_retry_of_end(transaction, request), transaction.state
        if state in (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT):
            return (retry or request.epoch == transaction.epoch) and transaction.epoch < MAX_EPOCH
        return request.epoch == transaction.epoch and not self.is_last_epoch(request.epoch)

    # ---------------------------------------------------------------------------------------------- one after the other

    def may_begin(self, transaction: TransactionMetadata) -> bool:
        """Return whether partitions may be added to the next transaction. They may not while markers of the previous
        transaction are still to be written, because these markers would end the next transaction (KAFKA-12671).
        """
        return transaction.state not in PREPARED

    def is_in_transaction(self, transaction: TransactionMetadata, partition: tuple[str, int]) -> bool:
        """Return whether the partition was added to the transaction. If not, the partition's leader has to refuse
        records of this transaction, because no marker would ever end the transaction there (KIP-890 part 1,
        KAFKA-14402).
        """
        assert transaction.state not in PREPARED
        return partition in transaction.partitions

    def awaits_markers(self, transaction: TransactionMetadata) -> bool:
        """Return whether the transaction is decided but not complete, so that a coordinator that loads it has to
        complete it.
        """
        return transaction.state in PREPARED

    # ------------------------------------------------------------------------------------------------------------ time

    def is_timed_out(self, transaction: TransactionMetadata, now_ms: int) -> bool:
        """Return whether an open transaction has exceeded the time-out that its producer asked for."""
        return transaction.state == TxnState.ONGOING and transaction.started_ms + transaction.timeout_ms < now_ms

    def is_expired(self, transaction: TransactionMetadata, now_ms: int) -> bool:
        """Return whether a transactional id without a transaction was unused for transactional.id.expiration.ms."""
        return transaction.state in AT_REST and transaction.updated_ms <= now_ms - self.settings.expiration_ms

    def is_timeout_allowed(self, timeout_ms: int) -> bool:
        """Return whether the time-out is positive and at most transaction.max.timeout.ms."""
        return 0 < timeout_ms <= self.settings.max_timeout_ms

    def bumped(self, transaction: TransactionMetadata, request: InitProducer) -> tuple[int, int] | None:
        """Return the producer's epoch after an InitProducerId without an open transaction, and its epoch before the
        bump, such as (8, 7). The epoch before the bump identifies a retry; for a new producer it is NO_EPOCH. Return
        None if the producer is fenced.

        A request without an epoch is that of a new producer: the epoch rises, which fences the previous producer. A
        request with the current epoch raises it as well. A request with the epoch before the last bump is a retry of
        that bump, and gets the current epoch (KIP-360).
        """
        assert (request.producer_id < 0) == (request.epoch < 0)
        if request.producer_id < 0:
            return transaction.epoch + 1, NO_EPOCH
        if request.epoch == transaction.epoch:
            return transaction.epoch + 1, transaction.epoch
        if request.epoch == transaction.last_epoch:
            return transaction.epoch, transaction.last_epoch
        return None
