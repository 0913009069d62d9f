"""Defines the outcomes of a producer's records, and what each Produce error says about an attempt.

Errors are indefinite unless they are listed here as definite: a definite error proves that its attempt appended
nothing.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple

from squall.broker.protocol.errors import ErrorCode


class OperationStatus(IntEnum):
    """Says whether an operation took effect."""

    OK = 0
    FAIL = 1
    """The operation did not take effect, and never will."""
    INFO = 2
    """The operation may have taken effect, or may take effect later."""


class Outcome(NamedTuple):
    """Reports how the send of one record ended: whether the record was appended, its offset and timestamp, or the
    error.
    """

    status: OperationStatus
    offset: int
    """Holds the record's offset; -1 if it is unknown (not OK, or acks=0)."""
    timestamp_ms: int
    """Holds the record's timestamp in the log, in ms; -1 unless OK."""
    error: str
    """Names the last error, Kafka's (REQUEST_TIMED_OUT) or the client's own (TIMED_OUT); empty if OK."""
    tries: int = -1
    """Counts how often an OK record was passed to a connection; -1 if the client does not report it."""


TIMED_OUT = "TIMED_OUT"
"""Means that no response came within the request time-out: the connection was closed, and all its outstanding requests
are in doubt.
"""
CONNECTION_LOST = "CONNECTION_LOST"
BAD_ANSWER = "BAD_ANSWER"
"""Means that the peer's bytes were not a response to the request. The connection was closed."""
DELIVERY_TIMED_OUT = "DELIVERY_TIMED_OUT"
"""Means that the delivery time-out passed before any byte of the record left the client."""
CLOSED = "CLOSED"
"""Means that the producer was closed before the record had an outcome."""
PRODUCER_STOPPED = "PRODUCER_STOPPED"
"""Means that the record was never sent, because an earlier record of its partition failed and order could not be kept.
"""


class ProduceErrorMeaning(Enum):
    """Names what an error in a Produce response says about the attempt that it answers."""

    REFUSED = "appended nothing, and would not if tried again"
    NOT_NOW = "appended nothing, may if tried again"
    OUT_OF_ORDER = "appended nothing, because something before it is missing"
    DOUBT = "may have been appended, trying again is safe or at least usual"
    END_IN_DOUBT = "may have been appended, trying again is no use"


_DEFINITE: dict[int, ProduceErrorMeaning] = {
    # The checksum did not match at the broker: the bytes were damaged on their way, and the batch itself is sound.
    ErrorCode.CORRUPT_MESSAGE: ProduceErrorMeaning.NOT_NOW,
    ErrorCode.NOT_ENOUGH_REPLICAS: ProduceErrorMeaning.NOT_NOW,  # checked before the append, unlike error 20
    # The markers of the transaction before are not on all partitions yet (KIP-890).
    ErrorCode.CONCURRENT_TRANSACTIONS: ProduceErrorMeaning.NOT_NOW,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ProduceErrorMeaning.OUT_OF_ORDER,
    ErrorCode.MESSAGE_TOO_LARGE: ProduceErrorMeaning.REFUSED,
    ErrorCode.INVALID_TOPIC_EXCEPTION: ProduceErrorMeaning.REFUSED,
    ErrorCode.RECORD_LIST_TOO_LARGE: ProduceErrorMeaning.REFUSED,
    ErrorCode.INVALID_REQUIRED_ACKS: ProduceErrorMeaning.REFUSED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ProduceErrorMeaning.REFUSED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ProduceErrorMeaning.REFUSED,
    ErrorCode.INVALID_TIMESTAMP: ProduceErrorMeaning.REFUSED,
    ErrorCode.UNSUPPORTED_VERSION: ProduceErrorMeaning.REFUSED,
    ErrorCode.INVALID_REQUEST: ProduceErrorMeaning.REFUSED,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: ProduceErrorMeaning.REFUSED,
    ErrorCode.POLICY_VIOLATION: ProduceErrorMeaning.REFUSED,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProduceErrorMeaning.REFUSED,
    ErrorCode.UNKNOWN_PRODUCER_ID: ProduceErrorMeaning.REFUSED,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: ProduceErrorMeaning.REFUSED,
    ErrorCode.INVALID_RECORD: ProduceErrorMeaning.REFUSED,
    ErrorCode.PRODUCER_FENCED: ProduceErrorMeaning.REFUSED,
    # Errors of transactions, raised before the append, because the coordinator is asked first (KIP-890).
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ProduceErrorMeaning.REFUSED,
    ErrorCode.INVALID_TXN_STATE: ProduceErrorMeaning.REFUSED,
    ErrorCode.TRANSACTION_ABORTABLE: ProduceErrorMeaning.REFUSED,
}

# Kafka answers a parked acks=all Produce with 3, 6, 56 or 100 when the partition leaves the broker after the append,
# and 6, 7 and 20 always leave the record's fate open (KAFKA-13574).
_DOUBTFUL = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)

_MEANINGS: dict[int, ProduceErrorMeaning] = {**_DEFINITE, **dict.fromkeys(_DOUBTFUL, ProduceErrorMeaning.DOUBT)}

STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Lists the errors after which a client requests metadata before it retries."""


def may_be_deposed(code: int, attempts: int) -> bool:
    """Return whether this error on this attempt suggests that the leader is cut off from the other brokers.

    The others may have elected a new leader without its knowledge, so the producer asks another broker for the leader.
    """
    # One NOT_ENOUGH_REPLICAS may be over at the retry, because followers catch up. A leader that is cut off repeats it.
    return code == ErrorCode.REQUEST_TIMED_OUT or (code == ErrorCode.NOT_ENOUGH_REPLICAS and attempts > 1)


def meaning(code: int) -> ProduceErrorMeaning:
    """Return the meaning of a Produce error. It is END_IN_DOUBT for an unlisted error: the batch may have been
    appended, and a retry is no use.
    """
    return _MEANINGS.get(code, ProduceErrorMeaning.END_IN_DOUBT)
