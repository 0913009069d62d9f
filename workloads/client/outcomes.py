"""Defines what is known about a record once its producer is done with it, and what each Produce error says about that.

Errors are indefinite unless listed here as definite: a code that proves that the attempt it answers appended nothing.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple

from squall.broker.protocol.errors import ErrorCode


class OperationStatus(IntEnum):
    """Says how an operation ended."""

    OK = 0
    FAIL = 1
    """Definitely not done, now or later."""
    INFO = 2
    """May have been done, or may be done later."""


class Outcome(NamedTuple):
    """Says how one record ended."""

    status: OperationStatus
    offset: int
    """Where it was appended; -1 where that is not known (not OK, or acks=0)."""
    timestamp_ms: int
    """What the log holds as its timestamp; -1 unless OK."""
    error: str
    """Empty when OK, else the name of the last error: Kafka's, or one of the client's own below."""
    tries: int = -1
    """An OK record was handed to a connection so often; -1 of a client that does not report it."""


TIMED_OUT = "TIMED_OUT"
"""No answer within the request time-out: the connection was closed, whatever was outstanding on it is in doubt."""
CONNECTION_LOST = "CONNECTION_LOST"
BAD_ANSWER = "BAD_ANSWER"
"""The peer's bytes were not a response to what was asked. The connection was closed."""
DELIVERY_TIMED_OUT = "DELIVERY_TIMED_OUT"
"""The delivery time-out passed before anything of the record left the client."""
CLOSED = "CLOSED"
"""The producer was closed before the record had an outcome."""
PRODUCER_STOPPED = "PRODUCER_STOPPED"
"""Never sent, because an earlier record of its partition was given up and order could no longer be kept."""


class ProduceErrorMeaning(Enum):
    """Names what an error in a Produce response says about the attempt that it answers."""

    REFUSED = "appended nothing, and would not if tried again"
    NOT_NOW = "appended nothing, may if tried again"
    OUT_OF_ORDER = "appended nothing, because something before it is missing"
    DOUBT = "may have been appended, trying again is safe or at least usual"
    END_IN_DOUBT = "may have been appended, trying again is no use"


_DEFINITE: dict[int, ProduceErrorMeaning] = {
    ErrorCode.CORRUPT_MESSAGE: ProduceErrorMeaning.NOT_NOW,
    ErrorCode.NOT_ENOUGH_REPLICAS: ProduceErrorMeaning.NOT_NOW,  # checked before the append; its sibling 20 is not
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
    # Of a transaction, told before the append: its coordinator was asked first (KIP-890).
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
"""Codes after which a client asks for metadata before it tries again."""


def may_be_deposed(code: int, attempts: int) -> bool:
    """Return whether a leader may be cut off from the others if it answers the attempt of this number with this code.

    The others may have elected a new leader, of which it cannot know. So its producer asks another broker for the
    leader.
    """
    return code == ErrorCode.REQUEST_TIMED_OUT or (code == ErrorCode.NOT_ENOUGH_REPLICAS and attempts > 1)


def meaning(code: int) -> ProduceErrorMeaning:
    """Return the meaning of a Produce error. A code that is not listed may mean anything: END_IN_DOUBT."""
    return _MEANINGS.get(code, ProduceErrorMeaning.END_IN_DOUBT)
