"""Defines the values that go in and out of a shard of the transaction coordinator: transactions, requests, and
decisions.

Times are wall-clock ms since the Unix epoch, as they are in the log. Producer ids and epochs that are absent are -1.
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
"""The last epoch of a producer id. No client ever gets it, so that whoever uses the one before can be fenced."""
V1: Final = 0
"""Generation of a client's transactions: the producer epoch stays the same from one to the next."""
V2: Final = 2
"""Each end of a transaction raises the producer epoch (KIP-890 part 2)."""

TopicPartition = tuple[str, int]


class TxnState(IntEnum):
    """States of a transactional id, with the numbers that Kafka's log has for them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided: markers are being written to every partition. Nothing but COMPLETE_COMMIT can follow."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Only in Kafka's memory: an id that is being expired."""
    PREPARE_EPOCH_FENCE = 7
    """Only in Kafka's memory: fencing and aborting are one record here."""


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
"""As DescribeTransactions and ListTransactions call the states."""

AT_REST: Final = (TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)
"""No transaction is open, and no marker is owed."""
PREPARED: Final = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)

LEGAL: Final = {
    TxnState.EMPTY: AT_REST,
    TxnState.ONGOING: (TxnState.ONGOING, *AT_REST),
    TxnState.PREPARE_COMMIT: (TxnState.ONGOING,),
    # From rest: a client of V2 may abort a transaction of which the coordinator has not heard yet.
    TxnState.PREPARE_ABORT: (TxnState.ONGOING, *AT_REST),
    TxnState.COMPLETE_COMMIT: (TxnState.PREPARE_COMMIT,),
    TxnState.COMPLETE_ABORT: (TxnState.PREPARE_ABORT,),
}
"""New state to the states that it may follow."""


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """A transactional id and its latest transaction. Immutable: each record of the log replaces it as a whole."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TxnState = TxnState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    """Each once, sorted: as they stand in the log. Empty at rest."""
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id as of the record before."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id to go on with once this transaction is complete, where the epochs of this one are used up."""
    client_version: int = V1
    """Generation of whoever wrote the latest record: V1 or V2."""
    last_epoch: int = field(default=NO_EPOCH, compare=False)
    """The epoch before the last bump, which the producer that had it may claim (KIP-360). Kafka's records do not hold
    it: a new coordinator knows it where V2 ended a transaction, and fences a retry of what InitProducerId bumped.
    """


@dataclass(frozen=True, slots=True)
class TransactionLogRecord:
    """A record of the log: the new state of a transactional id, or None where the id is forgotten."""

    transactional_id: str
    transaction: TransactionMetadata | None


# ------------------------------------------------------------------------------------------------------------ requests


@dataclass(frozen=True, slots=True)
class InitProducer:
    """A producer begins, or bumps its own epoch after an error (KIP-360): then it says which ones it had."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Partitions come into the transaction. The first ones begin it."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]
    client_version: int = V1


@dataclass(frozen=True, slots=True)
class VerifyPartitions:
    """A partition's leader asks whether these partitions are in the transaction (KIP-890 part 1)."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """A client commits or aborts."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    client_version: int = V1


@dataclass(frozen=True, slots=True)
class DescribeTransaction:
    """Nothing changes: the answer carries the transaction."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """The coordinator's own: every partition of the prepared transaction has its marker, or is gone."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class AbortTimedOutTransaction:
    """The coordinator's own: abort what has been open for longer than its producer asked for."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class ExpireTransactionalId:
    """The coordinator's own: forget an id that nobody has used for long."""

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
    """The answer to a request, in the words of its latest version; the APIs translate for older ones."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    partitions: tuple[tuple[TopicPartition, ErrorCode], ...] = ()
    """Of VerifyPartitions that as a whole had no error: the verdict on each."""
    transaction: TransactionMetadata | None = None
    """Of Describe."""


@dataclass(frozen=True, slots=True)
class TxnCoordinatorResult:
    """Records to append, and the answer. The answer may leave once the records, and all that it rests on, are
    committed.
    """

    answer: TxnResponse
    records: tuple[TransactionLogRecord, ...] = ()
    needs_producer_id: bool = False
    """Nothing is decided: ask again with a fresh producer id."""
    used_producer_id: bool = False
    """The fresh producer id is in the records: never use it again."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Holds the broker's settings that a shard needs."""

    max_timeout_ms: int = 900_000
    expiration_ms: int = 604_800_000
    version: int = V2
    """The cluster's level of `transaction.version`."""
    first_epoch: int = 0
    """Producer epoch of an id that nobody has used before."""
