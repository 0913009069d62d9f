"""Encodes and decodes the control batches that end transactions, in Kafka's format (KIP-98).

Such a batch has one record. Its key is version (int16) and type (int16), its value is version (int16) and coordinator
epoch (int32).
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import BatchHeader, Record, decode_batch, encode_batch

ABORT, COMMIT = 0, 1
_KEY = Struct(">hh")
_VALUE = Struct(">hi")


class TxnMarker(NamedTuple):
    """Holds the content of a control batch that ends a transaction."""

    commit: bool
    coordinator_epoch: int


def read_marker(header: BatchHeader, batch: memoryview) -> TxnMarker | None:
    """Return the transaction marker in a control batch, or None for other control records. Raises MalformedFrame."""
    records = decode_batch(header, batch)
    try:
        if len(records) != 1 or header.producer_id < 0:
            return None
        _, kind = _KEY.unpack_from(records[0].key or b"")
        if kind not in (ABORT, COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(records[0].value or b"")
    except StructError as problem:
        raise MalformedFrame(f"control record: {problem}") from problem
    return TxnMarker(kind == COMMIT, coordinator_epoch)


def encode_marker(producer_id: int, producer_epoch: int, marker: TxnMarker, timestamp: int) -> memoryview:
    """Return the control batch of a marker. The log that appends it sets its offset."""
    key = _KEY.pack(0, COMMIT if marker.commit else ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    data = encode_batch(
        [Record(0, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    return memoryview(bytearray(data))
