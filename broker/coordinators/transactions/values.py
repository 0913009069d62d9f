"""Defines the inputs and outputs of a shard of the transaction coordinator: transactions, requests and results.

Times are wall-clock ms since the Unix epoch, as in the log. Absent producer ids and epochs are -1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from squall.broker.protocol.errors import ErrorCode

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
MAX_EPOCH: Final = 32_767
"""Is the highest epoch of a producer id. Clients get only lower epochs, so that a fence can always raise a client's
epoch.
"""
V1: Final = 0
"""Is the transaction version of clients that keep their producer epoch from one transaction to the next. As in Kafka's
records, 0 means transaction.version 0 or 1.
"""
V2: Final = 2
"""Is the transaction version with which each end of a transaction raises the producer epoch (KIP-890 part 2)."""

TopicPartition = tuple[str, int]


class TxnState(IntEnum):
    """Names the states of a transactional id, with the numbers of Kafka's log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    """The commit is decided, and markers are being written to every partition. Only COMPLETE_COMMIT can follow."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Kafka has this state in memory while an id expires. No transaction has it here."""
    PREPARE_EPOCH_FENCE = 7
    """Kafka has this state in memory while it fences a producer. No transaction has it here: a single record fences the
    producer and decides the abort.
    """


STATE_NAMES: Final = {
    TxnState.EMPTY: "Empty",
    TxnState.ONGOING: "Ongoing",
    TxnState.PREPARE_COMMIT: "PrepareCommit",
    TxnState.PREPARE_ABORT: "PrepareAbort",
    TxnState.COMPLETE_COMMIT: "CompleteCommit",
    TxnState.COMPLETE_ABORT: "CompleteAbort",
    TxnState.DEAD: "Dead",
    TxnState.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
"""Maps a state to its name in DescribeTransactions and ListTransactions."""

AT_REST: Final = (TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)
"""Lists the states without an open transaction and without missing markers."""
PREPARED: Final = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)

LEGAL: Final = {
    TxnState.EMPTY: AT_REST,
    TxnState.ONGOING: (TxnState.ONGOING, *AT_REST),
    TxnState.PREPARE_COMMIT: (TxnState.ONGOING,),
    # From rest: a V2 client may abort a transaction that the coordinator does not know of yet.
    TxnState.PREPARE_ABORT: (TxnState.ONGOING, *AT_REST),
    TxnState.COMPLETE_COMMIT: (TxnState.PREPARE_COMMIT,),
    TxnState.COMPLETE_ABORT: (TxnState.PREPARE_ABORT,),
}
"""Maps a new state to the states that it may follow."""


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """Holds a transactional id and its latest transaction. It is immutable: each record of the log replaces it as a
    whole.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TxnState = TxnState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    """Lists the partitions of the transaction, sorted and without duplicates; empty if no transaction is open."""
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    """Holds the producer id that the previous record of this transactional id had."""
    next_producer_id: int = NO_PRODUCER_ID
    """Holds the producer id to use once this transaction is complete, if the epochs of the current id are used up."""
    client_version: int = V1
    """Holds the transaction version, V1 or V2, of the client whose request wrote the latest record."""
    last_epoch: int = field(default=NO_EPOCH, compare=False)
    """Holds the epoch before the latest bump. If the response with the bumped epoch got lost, the producer sends this
    epoch again (KIP-360).

    Kafka's records lack this field. After a failover the new coordinator can infer it only if the latest record ends a
    transaction of transaction version 2. It cannot infer it after a bump by InitProducerId, and then fences the retry.
    """


@dataclass(frozen=True, slots=True)
class TransactionLogRecord:
    """Represents a record of __transaction_state. `transaction` is the new state of the transactional id, or None to
    remove the id (a tombstone).
    """

    transactional_id: str
    transaction: TransactionMetadata | None


# ------------------------------------------------------------------------------------------------------------ requests


@dataclass(frozen=True, slots=True)
class InitProducer:
    """Asks for a producer id and epoch. After an error (KIP-360) it asks for a higher epoch: `producer_id` and `epoch`
    are then those that the producer had, else -1.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Asks to add partitions to the transaction. The first partitions begin it."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]
    client_version: int = V1


@dataclass(frozen=True, slots=True)
class VerifyPartitions:
    """Asks, for a partition's leader, whether these partitions are in the transaction (KIP-890 part 1)."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """Asks to commit or abort the transaction, for a client."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    client_version: int = V1


@dataclass(frozen=True, slots=True)
class DescribeTransaction:
    """Asks for a description of the transaction; the request changes nothing."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Reports that every partition of the prepared transaction has its marker or was deleted. The coordinator itself
    makes this request.
    """

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class AbortTimedOutTransaction:
    """Asks to abort a transaction that has exceeded its time-out. The coordinator itself makes this request."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ExpireTransactionalId:
    """Asks to remove an unused transactional id. The coordinator itself makes this request."""

    transactional_id: str


Request = (
    InitProducer
    | AddPartitions
    | VerifyPartitions
    | EndTransaction
    | DescribeTransaction
    | MarkersWritten
    | AbortTimedOutTransaction
    | ExpireTransactionalId
)


# ------------------------------------------------------------------------------------------------------ what is decided


@dataclass(frozen=True, slots=True)
class TxnResponse:
    """Holds the response to a request, with the error codes of the latest version of its API. The handlers in
    `squall.broker.apis.transactions` translate them for clients of older versions.
    """

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    partitions: tuple[tuple[TopicPartition, ErrorCode], ...] = ()
    """Holds an error or NONE for each partition that a leader asked to verify (`VerifyPartitions`); empty if the whole
    request has an `error`, and for all other requests.
    """
    transaction: TransactionMetadata | None = None
    """Holds the transaction that a DescribeTransaction asked for."""


@dataclass(frozen=True, slots=True)
class TxnCoordinatorResult:
    """Holds the response, and the records to append. The response may be sent once these records are committed. If
    there are none, the response waits for an earlier record, usually the latest record of the transactional id:
    `TransactionCoordinatorShard.offset_of` returns its offset.
    """

    answer: TxnResponse
    records: tuple[TransactionLogRecord, ...] = ()
    needs_producer_id: bool = False
    """Is True if nothing is decided yet: decide again with a fresh producer id."""
    used_producer_id: bool = False
    """Is True if the records use the fresh producer id that `decide` got. It must then not be used again."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Holds the broker's settings that a shard needs."""

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000
    version: int = V2
    """Holds the cluster's `transaction.version`."""
    first_epoch: int = 0
    """Gives the first producer epoch of a new transactional id."""
