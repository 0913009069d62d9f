"""Encodes and decodes records of __transaction_state in Kafka's format: a key for each transactional id, and its whole
state as the value.
"""

from __future__ import annotations

from squall.broker.coordinators.transactions.values import (
    MAX_EPOCH,
    NO_EPOCH,
    PREPARED,
    V2,
    TransactionLogRecord,
    TransactionMetadata,
    TxnState,
)
from squall.broker.protocol.coordinator_frame import decode_transaction_record, encode_key, encode_versioned
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.schema.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

TAGGED_FROM = 1
"""Is the first version of a transaction record's value that holds the previous and next producer ids and the client's
transaction version.
"""

_STATES = frozenset(TxnState)


def encode(written: TransactionLogRecord, transaction_version: int) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record. The cluster's `transaction.version` selects the version of the value:
    version 0 lacks the previous and next producer ids and the client's transaction version.
    """
    key = encode_key(TransactionLogKey(transactional_id=written.transactional_id))
    transaction = written.transaction
    if transaction is None:
        return key, None
    assert transaction.transactional_id == written.transactional_id
    assert transaction.state not in (TxnState.DEAD, TxnState.PREPARE_EPOCH_FENCE), "these are in memory only"
    version = TAGGED_FROM if transaction_version >= 1 else 0
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        # Kafka's TransactionLog writes null for Empty, and a list, maybe an empty one, for every other state.
        transaction_partitions=None if transaction.state == TxnState.EMPTY else _by_topic(transaction),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )
    if version >= TAGGED_FROM:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    return key, encode_versioned(value, version)


def _by_topic(transaction: TransactionMetadata) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, index in transaction.partitions:
        topics.setdefault(topic, []).append(index)
    return [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]


def decode(key: bytes, value: bytes | None) -> TransactionLogRecord | None:
    """Return the decoded record, or None for an unknown record type. Raises only MalformedFrame."""
    found = decode_transaction_record(key, value)
    if found is None:
        return None
    named, wire = found
    assert isinstance(named, TransactionLogKey)
    if wire is None:
        return TransactionLogRecord(named.transactional_id, None)
    assert isinstance(wire, TransactionLogValue)
    if wire.transaction_status not in _STATES:
        raise MalformedFrame(f"a transaction in state {wire.transaction_status}")
    return TransactionLogRecord(
        named.transactional_id,
        TransactionMetadata(
            named.transactional_id,
            wire.producer_id,
            wire.producer_epoch,
            wire.transaction_timeout_ms,
            TxnState(wire.transaction_status),
            tuple(sorted((t.topic, int(i)) for t in wire.transaction_partitions or () for i in t.partition_ids)),
            wire.transaction_start_timestamp_ms,
            wire.transaction_last_update_timestamp_ms,
            wire.previous_producer_id,
            wire.next_producer_id,
            wire.client_transaction_version,
            _last_epoch(wire),
        ),
    )


def _last_epoch(wire: TransactionLogValue) -> int:
    """Return the producer's epoch before its last bump, or NO_EPOCH if the record does not show it. `wire` is the
    record's value.

    Only the end of a transaction with transaction version 2 shows it (KIP-890 part 2). That end, requested or by a
    fence, has raised the epoch by one, or has moved to the next producer id if the epochs were used up. The record of
    an InitProducerId does not show it: the record is the same for a new producer, which never had the earlier epoch,
    and for a producer that asks for a higher epoch.
    """
    ended = (*PREPARED, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)
    if wire.client_transaction_version < V2 or wire.transaction_status not in ended:
        return NO_EPOCH
    return wire.producer_epoch - 1 if wire.producer_id == wire.previous_producer_id else MAX_EPOCH - 1
