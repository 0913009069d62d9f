"""Reads a batch's records without making objects of them: for look-ups by time, and for the full check of a batch.

Both decompress no more than they must and never more than a limit, because a batch of a few hundred bytes can claim to
hold gigabytes. Both take long for large batches: run them off the event loop. Neither reads more than MOST_RECORDS
records, because a batch of a few thousand bytes can hold millions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from squall.broker.protocol.compression import unpacked, unpacked_stepwise
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import HEADER_SIZE, TIMESTAMP_TYPE_BIT, BatchHeader, read_varint

MOST_RECORDS: Final = 1_000_000
"""Limits the records of one batch that are read; they take at most 2 s. Kafka's largest batch has 150,000 by default
before compression.
"""
GIVEN_UP_EVERY: Final = 4096
"""Gives the number of records between two checks whether the client still waits for the answer."""
MOST_FAULTS: Final = 100
"""Limits how many invalid records of a batch are reported to the producer."""

LONG_MAX: Final = 2**63 - 1

Bytes = bytes | bytearray


def record_since(
    header: BatchHeader,
    batch: memoryview,
    timestamp: int,
    start: int,
    limit: int,
    max_bytes: int,
    *,
    is_given_up: Callable[[], bool] = lambda: False,
) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record with an offset in [start, limit) and a timestamp of at least
    `timestamp`; None if there is none.

    Raises only MalformedFrame: for invalid bytes, if the search would pass `max_bytes` or MOST_RECORDS, or if
    `is_given_up` returns True because the client no longer waits for the answer.
    """
    stamped = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
    at, left = 0, header.record_count
    unread = max(0, left - MOST_RECORDS)
    for body, whole in unpacked_stepwise(header.codec, batch[HEADER_SIZE:], max_bytes):
        while left > 0:
            if left % GIVEN_UP_EVERY == 0 and is_given_up():
                raise MalformedFrame("nobody waits for the answer")
            if left == unread:
                raise MalformedFrame(f"no such record among the first {MOST_RECORDS} of a batch")
            try:
                size, place = read_varint(body, at)
                delta, place_behind = read_varint(body, place + 1)
                offset_delta, _ = read_varint(body, place_behind)
            except IndexError as problem:
                if whole:
                    raise MalformedFrame(f"a batch that ends {left} records before its end") from problem
                break
            if size < 0:
                raise MalformedFrame(f"a record of {size} bytes")
            stamp = header.base_timestamp + delta if stamped is None else stamped
            offset = header.base_offset + offset_delta
            if stamp >= timestamp and start <= offset < limit:
                return _representable(stamp), offset
            at = place + size
            left -= 1
        if left <= 0:
            break
    return None


def _representable(timestamp: int) -> int:
    """Return the timestamp, or raise MalformedFrame if no int64 of a response or header can hold it. Timestamps are the
    sum of a base and a delta of any size.
    """
    if not -1 <= timestamp <= LONG_MAX:
        raise MalformedFrame(f"a record with the timestamp {timestamp}")
    return timestamp


class InvalidRecord(NamedTuple):
    """Names a record because of which its batch is refused, with the error message for the producer."""

    place: int
    """Gives the position of the record in the batch, from 0."""
    message: str


class CheckedBatch(NamedTuple):
    """Holds what `check_records` found in a batch: the largest timestamp, and the invalid records."""

    max_timestamp: int
    untimely: tuple[InvalidRecord, ...] = ()
    keyless: tuple[InvalidRecord, ...] = ()


def check_records(
    header: BatchHeader, batch: memoryview, max_bytes: int, *, earliest: int, latest: int, needs_keys: bool
) -> CheckedBatch:
    """Read every record of a batch, and return its largest timestamp and its invalid records. A record is invalid if
    its timestamp is outside [earliest, latest], or if `needs_keys` is true and it has no key.

    Raises MalformedFrame if the number of records differs from the header, if their offsets do not ascend one by one,
    or if the batch decompresses to more than `max_bytes`.
    """
    assert header.record_count <= MOST_RECORDS
    body = unpacked(header.codec, batch[HEADER_SIZE:], max_bytes)
    base, at, newest = header.base_timestamp, 0, -1
    untimely: list[InvalidRecord] = []
    keyless: list[InvalidRecord] = []
    try:
        for index in range(header.record_count):
            delta, has_key, at = _check_record(body, at, index)
            stamp = base + delta
            newest = max(newest, _representable(stamp))
            if stamp != -1 and not earliest <= stamp <= latest and len(untimely) < MOST_FAULTS:
                why = f"Timestamp {stamp} of message with offset {index} is out of range."
                untimely.append(InvalidRecord(index, f"{why} The timestamp should be within [{earliest}, {latest}]"))
            if needs_keys and not has_key and len(keyless) < MOST_FAULTS:
                keyless.append(InvalidRecord(index, "Compacted topic cannot accept message without key"))
    except IndexError as problem:
        raise MalformedFrame(f"record {index} ends behind its batch") from problem
    if at != len(body):
        raise MalformedFrame(f"{len(body) - at} bytes behind the last record of a batch")
    return CheckedBatch(newest, tuple(untimely), tuple(keyless))


def _check_record(body: Bytes, at: int, index: int) -> tuple[int, bool, int]:
    """Return the timestamp delta of a record, whether it has a key, and the position of the next record. Raises
    IndexError if the bytes end too early.
    """
    size, at = read_varint(body, at)
    end = at + size
    if size < 0 or end > len(body):
        raise MalformedFrame(f"record {index} of {size} bytes, {len(body) - at} are left")
    delta, at = read_varint(body, at + 1)
    offset_delta, at = read_varint(body, at)
    if offset_delta != index:
        raise MalformedFrame(f"record {index} has the offset delta {offset_delta}")
    key, at = read_varint(body, at)
    value, at = read_varint(body, at + max(0, key))
    headers, at = read_varint(body, at + max(0, value))
    if key < -1 or value < -1 or not 0 <= headers <= size:
        raise MalformedFrame(f"record {index} has a key of {key} bytes, a value of {value}, and {headers} headers")
    for _ in range(headers):
        name, at = read_varint(body, at)
        content, at = read_varint(body, at + max(0, name))
        if name < 0 or content < -1:
            raise MalformedFrame(f"record {index} has a header's name of {name} bytes and content of {content}")
        at += max(0, content)
    if at != end:
        raise MalformedFrame(f"the fields of record {index} end {end - at} bytes before the record")
    return delta, key >= 0, end
