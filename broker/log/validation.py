"""Checks whether a leader accepts a batch, and chooses the error of a refusal (kafka-wire.md section 2, KIP-98,
KIP-937).

The header is always checked: a batch must not claim more records than its bytes can hold. Its records are read only if
the topic asks for it (`squall.record.validation.enable`) or each record needs a key, because that costs as much as the
rest of an append (docs/broker.md).
"""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

from squall.broker.log.config import LONG_MAX, LogConfig
from squall.broker.log.results import AppendResult
from squall.broker.protocol.compression import MOST_UNPACKED
from squall.broker.protocol.errors import ErrorCode, MalformedFrame
from squall.broker.protocol.record_walk import MOST_RECORDS, CheckedBatch, check_records
from squall.broker.protocol.records import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_FROM,
    HEADER,
    HEADER_SIZE,
    SMALLEST_RECORD,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)

ZSTD = 4
ORDINARY = frozenset(codec | txn for codec in range(ZSTD + 1) for txn in (0, TRANSACTIONAL_BIT))
"""Holds the attributes of batches that need no further checks: any codec, transactional or not."""

_CRC = Struct(">I")
_CRC_AT = 17
_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP = Struct(">q")
_MAX_TIMESTAMP_AT = 35


def refusal(records: memoryview, config: LogConfig, wall_ms: int, *, client: bool, zstd: bool) -> AppendResult | None:
    """Return the first reason, in Kafka's order, to refuse `records`, or None. `client` is False for batches that the
    broker itself writes. `zstd` says whether zstd is allowed, which needs Produce version 7.
    """
    if len(records) < HEADER_SIZE:
        return _invalid(f"{len(records)} bytes are no record batch")
    header = BatchHeader._make(HEADER.unpack_from(records))
    return (
        _malformed(header, len(records))
        or _too_large(header, config, client)
        or _corrupt(records, header)
        or _not_for_clients(header, client, zstd)
        or (_overfull(header, config) if client else None)
        or _untimely(header, config, wall_ms)
    )


def claims_too_many_records(header: BatchHeader) -> bool:
    """Return whether a batch claims more records than its bytes can decompress to."""
    packed = header.size - HEADER_SIZE
    return header.record_count * SMALLEST_RECORD > packed * MOST_UNPACKED[header.attributes & CODEC_MASK]


def check_batch(records: memoryview, config: LogConfig, wall_ms: int) -> CheckedBatch | AppendResult:
    """Check the records of a client's batch whose header is valid. Returns what they contain, or the refusal. A batch
    may decompress to squall.decompressed.batch.max.bytes, so callers check large batches off the event loop.
    """
    header = BatchHeader._make(HEADER.unpack_from(records))
    if header.record_count > MOST_RECORDS:
        why = f"{header.record_count} records in a batch whose records are read: at most {MOST_RECORDS} are"
        return AppendResult.refused(ErrorCode.MESSAGE_TOO_LARGE, why)
    free = config.message_timestamp_type == "LogAppendTime"
    earliest = -LONG_MAX if free else wall_ms - config.message_timestamp_before_max_ms
    latest = LONG_MAX if free else wall_ms + config.message_timestamp_after_max_ms
    assert earliest <= latest
    try:
        found = check_records(
            header,
            records,
            config.squall_decompressed_batch_max_bytes,
            earliest=earliest,
            latest=latest,
            needs_keys=config.compacted,
        )
    except MalformedFrame as problem:
        return _invalid(str(problem))
    if found.untimely:
        why = "One or more records have been rejected due to invalid timestamp"
        return AppendResult.refused(ErrorCode.INVALID_TIMESTAMP, why, found.untimely)
    if found.keyless:
        why = f"One or more records have been rejected due to {len(found.keyless)} record errors in total"
        return AppendResult.refused(ErrorCode.INVALID_RECORD, why, found.keyless)
    return found


def check_unusual(
    records: memoryview,
    config: LogConfig,
    wall_ms: int,
    *,
    client: bool,
    zstd: bool,
    checked: CheckedBatch | AppendResult | None,
) -> AppendResult | tuple[memoryview, int]:
    """Check a batch that failed one of the fast checks in `append_as_leader`. Return the refusal, or the batch and its
    largest timestamp. `client` and `zstd` mean the same as in `refusal`. `checked` is the result of `check_batch`, or
    None if it was not called.

    The header of a client's batch may have a wrong largest timestamp. It is corrected from the records, as in Kafka. If
    the records are not read, only the first record's timestamp is known, because it is in the header. The largest
    timestamp is then raised to it if necessary.
    """
    refused = refusal(records, config, wall_ms, client=client, zstd=zstd)
    if refused is not None:
        return refused
    header = BatchHeader._make(HEADER.unpack_from(records))
    now = header.max_timestamp
    if not client:
        return records, now
    if config.checks_records and checked is None:
        checked = check_batch(records, config, wall_ms)
    if isinstance(checked, AppendResult):
        return checked
    largest = max(header.base_timestamp, now) if checked is None else checked.max_timestamp
    if largest == now or config.message_timestamp_type == "LogAppendTime":
        return records, now
    return with_timestamp(records, largest, False), largest


def _malformed(header: BatchHeader, size: int) -> AppendResult | None:
    if header.magic != 2:
        return _invalid(f"magic {header.magic}: only batches of format 2 are taken")
    if header.size < HEADER_SIZE or header.size > size:
        return AppendResult.refused(ErrorCode.CORRUPT_MESSAGE, f"a batch of {header.size} bytes in {size}")
    if header.size < size:
        return _invalid("a produce request has exactly one batch for a partition")
    return None


def _too_large(header: BatchHeader, config: LogConfig, client: bool) -> AppendResult | None:
    # Without this exception a small max.message.bytes would leave a transaction open for ever.
    is_marker = not client and header.attributes & CONTROL_BIT
    if header.size > config.max_message_bytes and not is_marker:
        limit = config.max_message_bytes
        return AppendResult.refused(ErrorCode.MESSAGE_TOO_LARGE, f"{header.size} bytes, max.message.bytes is {limit}")
    # The broker's own batches (markers, controller's decisions) may be larger: they get a segment of their own.
    if client and header.size > config.segment_bytes:
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
    if header.base_offset:
        return _invalid(f"a client's batch begins at offset 0, not at {header.base_offset}")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        return _invalid(f"producer {header.producer_id} without epoch or sequence")
    if header.producer_id < 0 and header.attributes & TRANSACTIONAL_BIT:
        return _invalid("a transactional batch without a producer id")
    return None


def _untimely(header: BatchHeader, config: LogConfig, wall_ms: int) -> AppendResult | None:
    """Return the refusal of invalid timestamps, or None. The header's timestamps are checked, not those of single
    records.
    """
    if header.attributes & TIMESTAMP_TYPE_BIT:
        return AppendResult.refused(ErrorCode.INVALID_TIMESTAMP, "producers do not set the type LogAppendTime")
    if config.message_timestamp_type == "LogAppendTime":
        return None
    if min(header.base_timestamp, header.max_timestamp) < -1:
        return AppendResult.refused(ErrorCode.INVALID_TIMESTAMP, f"timestamps from {header.base_timestamp} on")
    ahead, behind = header.max_timestamp - wall_ms, wall_ms - header.base_timestamp
    if ahead > config.message_timestamp_after_max_ms:
        return AppendResult.refused(ErrorCode.INVALID_TIMESTAMP, f"a timestamp {ahead} ms ahead of the broker's clock")
    # -1 means that there is no timestamp, so it cannot be too old.
    if behind > config.message_timestamp_before_max_ms and header.base_timestamp >= 0:
        return AppendResult.refused(ErrorCode.INVALID_TIMESTAMP, f"a timestamp {behind} ms behind the broker's clock")
    return None


def _overfull(header: BatchHeader, config: LogConfig) -> AppendResult | None:
    """Return the refusal of a batch that claims too many records, else None. Too many are more than its bytes can
    decompress to, or more than fit into `squall.decompressed.batch.max.bytes`. One such batch could move the log's end
    offset by 2^31.
    """
    most = config.squall_decompressed_batch_max_bytes // SMALLEST_RECORD
    if not claims_too_many_records(header) and header.record_count <= most:
        return None
    return _invalid(f"{header.record_count} records in a batch of {header.size} bytes")


def _invalid(message: str) -> AppendResult:
    return AppendResult.refused(ErrorCode.INVALID_RECORD, message)


def with_timestamp(records: memoryview, timestamp: int, append_time: bool) -> memoryview:
    """Return the batch with another largest timestamp and a new CRC. With `append_time` the timestamp applies to every
    record. Changes the batch in place unless it is read-only.
    """
    assert len(records) >= HEADER_SIZE
    if records.readonly:
        records = memoryview(bytearray(records))
    attributes = _ATTRIBUTES.unpack_from(records, _ATTRIBUTES_AT)[0]
    attributes = attributes | TIMESTAMP_TYPE_BIT if append_time else attributes & ~TIMESTAMP_TYPE_BIT
    _ATTRIBUTES.pack_into(records, _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(records, _MAX_TIMESTAMP_AT, timestamp)
    assert not records.readonly
    # The CRC covers both fields; base offset and leader epoch lie before what it covers, so an append leaves it alone.
    _CRC.pack_into(records, _CRC_AT, crc32c(records[CRC_FROM:]))
    return records
