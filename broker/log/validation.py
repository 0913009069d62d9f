"""Which batches a leader takes, and what it answers (kafka-wire.md section 2, KIP-98, KIP-937)."""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from broker.log.config import LogConfig
from broker.log.results import AppendResult
from broker.protocol.errors import ErrorCode, MalformedFrame
from broker.protocol.records import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    decode_batch,
)

ZSTD = 4
ORDINARY = frozenset(codec | txn for codec in range(ZSTD + 1) for txn in (0, TRANSACTIONAL_BIT))
"""The attributes of batches that need no closer look: any codec, transactional or not."""

_CRC = Struct(">I")
_CRC_AT = 17
_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_AT = 35


def refusal(records: memoryview, config: LogConfig, wall_ms: int, *, client: bool, zstd: bool) -> AppendResult | None:
    """The first reason, in Kafka's order, not to append `records`; None where there is none."""
    if len(records) < HEADER_SIZE:
        return _invalid(f"{len(records)} bytes are no record batch")
    header = BatchHeader._make(HEADER.unpack_from(records))
    return (
        _misshapen(header, len(records))
        or _too_large(header, config, client)
        or _corrupt(records, header)
        or _not_for_clients(header, client, zstd)
        or _untimely(header, config, wall_ms)
        or (_keyless(header, records) if config.compacted and client else None)
    )


def _misshapen(header: BatchHeader, size: int) -> AppendResult | None:
    if header.magic != 2:
        return _invalid(f"magic {header.magic}: only batches of format 2 are taken")
    if header.size < HEADER_SIZE or header.size > size:
        return AppendResult.refused(ErrorCode.CORRUPT_MESSAGE, f"a batch of {header.size} bytes in {size}")
    if header.size < size:
        return _invalid("a produce request has exactly one batch for a partition")
    return None


def _too_large(header: BatchHeader, config: LogConfig, client: bool) -> AppendResult | None:
    # A marker that did not fit would leave its transaction open for ever.
    is_marker = not client and header.attributes & CONTROL_BIT
    if header.size > config.max_message_bytes and not is_marker:
        limit = config.max_message_bytes
        return AppendResult.refused(ErrorCode.MESSAGE_TOO_LARGE, f"{header.size} bytes, max.message.bytes is {limit}")
    if header.size > config.segment_bytes:
        limit = config.segment_bytes
        return AppendResult.refused(ErrorCode.RECORD_LIST_TOO_LARGE, f"{header.size} bytes, segment.bytes is {limit}")
    return None


def _corrupt(records: memoryview, header: BatchHeader) -> AppendResult | None:
    found = crc32c(records[CRC_FROM:])
    if found == header.crc:
        return None
    return AppendResult.refused(ErrorCode.CORRUPT_MESSAGE, f"CRC-32C {found:#010x} instead of {header.crc:#010x}")


def _not_for_clients(header: BatchHeader, client: bool, zstd: bool) -> AppendResult | None:
    count, codec = header.record_count, header.attributes & CODEC_MASK
    if count < 1 or header.last_offset_delta != count - 1:
        return _invalid(f"{count} records, but a last offset delta of {header.last_offset_delta}")
    if codec > ZSTD:
        return _invalid(f"codec {codec} does not exist")
    if codec == ZSTD and not zstd:
        return AppendResult.refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")
    if header.attributes & ~(CODEC_MASK | TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT):
        return _invalid(f"attributes {header.attributes:#06x}")
    if not client:
        return None
    if header.attributes & CONTROL_BIT:
        return _invalid("clients do not write control records")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        return _invalid(f"producer {header.producer_id} without epoch or sequence")
    if header.producer_id < 0 and header.attributes & TRANSACTIONAL_BIT:
        return _invalid("a transactional batch without a producer id")
    return None


def _untimely(header: BatchHeader, config: LogConfig, wall_ms: int) -> AppendResult | None:
    """The header's bounds stand for the records: base and max timestamp are the first and the largest one's."""
    if config.message_timestamp_type == "LogAppendTime":
        return None
    ahead, behind = header.max_timestamp - wall_ms, wall_ms - header.base_timestamp
    if ahead > config.message_timestamp_after_max_ms:
        return AppendResult.refused(ErrorCode.INVALID_TIMESTAMP, f"a timestamp {ahead} ms ahead of the broker's clock")
    if behind > config.message_timestamp_before_max_ms and header.base_timestamp >= 0:
        return AppendResult.refused(ErrorCode.INVALID_TIMESTAMP, f"a timestamp {behind} ms behind the broker's clock")
    return None


def _keyless(header: BatchHeader, records: memoryview) -> AppendResult | None:
    try:
        without = next((record for record in decode_batch(header, records) if record.key is None), None)
    except MalformedFrame as problem:
        return AppendResult.refused(ErrorCode.CORRUPT_MESSAGE, str(problem))
    return None if without is None else _invalid("a record without a key in a compacted topic")


def _invalid(message: str) -> AppendResult:
    return AppendResult.refused(ErrorCode.INVALID_RECORD, message)


def stamp_append_time(records: memoryview, wall_ms: int, append_time: bool) -> tuple[memoryview, int]:
    """Set the timestamp type that the topic wants, and with it the largest timestamp; the CRC anew.

    The batch, in place unless it cannot be written to, and the largest timestamp, which then holds for every record.
    """
    if records.readonly:
        records = memoryview(bytearray(records))
    attributes = _ATTRIBUTES.unpack_from(records, _ATTRIBUTES_AT)[0]
    timestamp: int = _MAX_TIMESTAMP.unpack_from(records, _MAX_TIMESTAMP_AT)[0]
    if append_time:
        timestamp = wall_ms
        attributes |= TIMESTAMP_TYPE_BIT
    else:
        attributes &= ~TIMESTAMP_TYPE_BIT
    _ATTRIBUTES.pack_into(records, _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(records, _MAX_TIMESTAMP_AT, timestamp)
    _CRC.pack_into(records, _CRC_AT, crc32c(records[CRC_FROM:]))
    return records, timestamp
