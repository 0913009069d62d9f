"""The rules of transactions (P3), one method each. None of them changes anything.

Every rule here is what some released broker once got wrong, and what it protects is in its docstring. They are methods
so that a planted bug can replace exactly one (`chaos/mutants`), and so that tests can ask them directly.
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
    """Holds every transactional id of one shard, and the rules over them. `Shard` adds what changes them."""

    __slots__ = ("settings", "transactions")

    settings: TransactionSettings
    transactions: dict[str, TransactionMetadata]

    # ------------------------------------------------------------------------------------------------- producer epochs

    def first_epoch(self) -> int:
        """The epoch of a transactional id that nobody has used before: 0, if no setting says otherwise."""
        return self.settings.first_epoch

    def is_exhausted(self, epoch: int) -> bool:
        """Return whether an epoch may be fenced but not bumped for a client: the last one is kept for the fence."""
        return epoch >= MAX_EPOCH - 1

    def is_nobodys(self, epoch: int) -> bool:
        """Return whether this is the last epoch, which no client is given: what began in it could not be fenced."""
        return epoch >= MAX_EPOCH

    def fenced_epoch(self, transaction: TransactionMetadata) -> int:
        """The epoch under which the coordinator aborts a transaction whose producer it shuts out: one above, for both
        generations, and however often it is tried (KAFKA-19367, KAFKA-20090). A fence that could not be written has
        changed nothing, so trying again bumps to the same epoch (KAFKA-9666). What a log has open in the last epoch is
        aborted in it: there is none above.
        """
        return transaction.epoch if self.is_nobodys(transaction.epoch) else transaction.epoch + 1

    def epoch_of_end(self, transaction: TransactionMetadata, client_version: int) -> int:
        """The epoch that is prepared at the end of a transaction: V2 raises it with each, so that whatever comes late
        of this transaction is not taken for the next one (KIP-890 part 2, KAFKA-17754).
        """
        return transaction.epoch + 1 if client_version >= V2 else transaction.epoch

    # --------------------------------------------------------------------------------------------------------- fencing

    def is_known_producer(self, transaction: TransactionMetadata, request: InitProducer) -> bool:
        """Return whether a producer that names its earlier id and epoch may continue: its id is the current one, or the
        previous one with an exhausted epoch, whose answer with a new id got lost (KIP-360).
        """
        if request.producer_id == transaction.producer_id:
            return True
        return request.producer_id == transaction.previous_producer_id and self.is_exhausted(request.epoch)

    def is_fenced(self, transaction: TransactionMetadata, epoch: int) -> bool:
        """Return whether a request of this epoch comes from a producer that has been replaced, or was never let in."""
        return epoch != transaction.epoch

    def is_retry_of_overflow(self, transaction: TransactionMetadata, request: EndTransaction) -> bool:
        """V2: whether this end was carried out before, and gave another producer id in an answer that got lost."""
        used_up = request.epoch == MAX_EPOCH - 1 and transaction.epoch == 0
        return used_up and transaction.previous_producer_id == request.producer_id

    def is_retry_of_end(self, transaction: TransactionMetadata, request: EndTransaction) -> bool:
        """V2: whether this end was carried out before, and its answer lost: the epoch is the one before the bump, or
        the producer id is the one before the overflow.
        """
        return self.is_retry_of_overflow(transaction, request) or transaction.epoch == request.epoch + 1

    def may_end(self, transaction: TransactionMetadata, request: EndTransaction) -> bool:
        """V2: whether the epoch is one with which this request can come in this state, in which no markers are owed;
        otherwise it is fenced.

        Only a fence ends a transaction at the last epoch. To take its producer's abort for a retry would give this
        epoch away, and what is then opened could be neither ended nor fenced (KAFKA-20090).
        """
        retry, state = self.is_retry_of_end(transaction, request), transaction.state
        if state in (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT):
            return (retry or request.epoch == transaction.epoch) and transaction.epoch < MAX_EPOCH
        return request.epoch == transaction.epoch and not self.is_nobodys(request.epoch)

    # ---------------------------------------------------------------------------------------------- one after the other

    def may_begin(self, transaction: TransactionMetadata) -> bool:
        """Return whether partitions may be added: not while the transaction before still waits for its markers, or they
        would end the next one (KAFKA-12671).
        """
        return transaction.state not in PREPARED

    def is_in_transaction(self, transaction: TransactionMetadata, partition: tuple[str, int]) -> bool:
        """Return whether a partition's leader may take records of this transaction: otherwise it would open one that
        never ends (KIP-890 part 1, KAFKA-14402).
        """
        return partition in transaction.partitions

    def owes_markers(self, transaction: TransactionMetadata) -> bool:
        """Return whether the transaction is decided and not complete: found in a log that is loaded, it has to be
        completed.
        """
        return transaction.state in PREPARED

    # ------------------------------------------------------------------------------------------------------------ time

    def is_timed_out(self, transaction: TransactionMetadata, now_ms: int) -> bool:
        """Return whether an open transaction has outlived the time that its producer asked for."""
        return transaction.state == TxnState.ONGOING and transaction.started_ms + transaction.timeout_ms < now_ms

    def is_expired(self, transaction: TransactionMetadata, now_ms: int) -> bool:
        """Return whether an id at rest has been left alone for transactional.id.expiration.ms."""
        return transaction.state in AT_REST and transaction.updated_ms <= now_ms - self.settings.expiration_ms

    def is_timeout_allowed(self, timeout_ms: int) -> bool:
        """Return whether the time-out is above zero, and not above transaction.max.timeout.ms."""
        return 0 < timeout_ms <= self.settings.max_timeout_ms

    def bumped(self, transaction: TransactionMetadata, request: InitProducer) -> tuple[int, int] | None:
        """(epoch, last epoch) after an InitProducerId at rest; None: fenced.

        Without a claim the epoch rises, which fences whoever has it. With one it rises if the claim is current. A claim
        of the epoch before the last bump is a retry of that bump, and gets the epoch as it is (KIP-360).
        """
        if request.producer_id < 0:
            return transaction.epoch + 1, NO_EPOCH
        if request.epoch == transaction.epoch:
            return transaction.epoch + 1, transaction.epoch
        if request.epoch == transaction.last_epoch:
            return transaction.epoch, transaction.last_epoch
        return None
