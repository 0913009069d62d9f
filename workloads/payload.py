"""Encodes the value field of a record: a globally unique value that a reader can verify by itself.

Layout, big-endian: magic `SQ1`, value u64, CRC-32C u32, timestamp i64 (ms; -1 if the record may have another one), key
length u16 (0xFFFF if there is no key), the key again, padding up to the workload's record size. The CRC covers all
fields after the magic, and the record's headers. So a reader that knows nothing of the sent records detects damage to
any of them, a key or header of another record, and a timestamp that is not the sender's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from squall.checkers.history.values import SEQUENCE_BITS

Headers = Sequence[tuple[str, bytes | None]]

MAGIC = b"SQ1"
HEADER, EMPTY_HEADER = "squall", "none"
HEADER_EVERY = 4
"""Every fourth record of a process has headers. The others have none, because reading a record with headers costs as
much as reading two without.
"""
MIN_SIZE = 3 + 8 + 4 + 8 + 2
NO_KEY = 0xFFFF
NOT_PROMISED = -1
"""Is the timestamp in a payload that does not say which timestamp its record has. A user's program sets timestamps of
its own, after the payload is made.
"""
NOT_KNOWN = -2
"""Replaces a read record's timestamp, which is then not checked, if the leader set the timestamp (LogAppendTime), or if
the client does not report it.
"""

_HEAD = Struct(">3sQIqH")
_VALUE_FROM, _CRC_FROM, _TIMESTAMP_FROM = 3, 11, 15
"""These are the positions of the first bytes of value, CRC and timestamp."""
_VALUE = Struct(">Q")
_COVERED = Struct(">QqH")
_LENGTH = Struct(">i")
_PAD_BLOCKS = 2048


def _make_padding() -> bytes:
    """Return 64 KiB that no codec can compress, the same in every process. The padding of a record is a slice of it."""
    return b"".join(hashlib.sha256(b"squall padding %d" % block).digest() for block in range(_PAD_BLOCKS))


_PADDING = _make_padding()


class VerifiedPayload(NamedTuple):
    """Holds the value that a payload encodes, or the reason why the payload does not verify."""

    value: int
    """Holds the globally unique value of the record; -1 if the payload does not verify."""
    why: str
    """Says what is wrong with the payload; empty if nothing is."""


def value_of(process: int, sequence: int) -> int:
    """Return the globally unique value of a process's record; process and sequence count from 0."""
    assert 0 <= sequence < 1 << SEQUENCE_BITS, sequence
    return process << SEQUENCE_BITS | sequence


def make(
    value: int, key: bytes | None, headers: Headers = (), size: int = MIN_SIZE, timestamp_ms: int = NOT_PROMISED
) -> tuple[bytes, int]:
    """Return the payload of `value`, and its CRC as the digest to record.

    The payload has `size` bytes, or more if the key does not fit into them. Keys are shorter than 65,535 bytes.
    `timestamp_ms` is the record's timestamp, which a topic with CreateTime keeps.
    """
    echo = key or b""
    assert len(echo) < NO_KEY, len(echo)
    room = size - MIN_SIZE - len(echo)
    padding = _padding(value, room) if room > 0 else b""
    length = NO_KEY if key is None else len(echo)
    digest = _digest_of_headers(headers, crc32c(_COVERED.pack(value, timestamp_ms, length) + echo))
    crc = crc32c(padding, digest)
    return _HEAD.pack(MAGIC, value, crc, timestamp_ms, length) + echo + padding, crc


def headers_of(value: int, sequence: int) -> list[tuple[str, bytes | None]]:
    """Return the headers of the record with this value. `sequence` is the record's number among those of its process:
    every fourth record has headers, the others get an empty list.
    """
    return [(HEADER, _VALUE.pack(value)), (EMPTY_HEADER, None)] if sequence % HEADER_EVERY == 0 else []


def size_of(headers: Headers) -> int:
    """Return how many bytes these headers add to a record: names, values, and one byte for the length of each, which is
    enough up to a length of 63.
    """
    return sum(2 + len(name) + len(content or b"") for name, content in headers)


def beginning(value: int) -> bytes:
    """Return the bytes with which the payload of `value`, and of no other value, begins."""
    return MAGIC + _VALUE.pack(value)


def verify(
    payload: bytes | None, key: bytes | None, headers: Headers = (), timestamp_ms: int = NOT_KNOWN
) -> VerifiedPayload:
    """Check that a read record is as it was sent, from its value field `payload`, key, headers and timestamp. Return
    its value, or -1 and what is wrong. `timestamp_ms` is the record's timestamp, or NOT_KNOWN.
    """
    if payload is None:
        return VerifiedPayload(-1, "no payload")
    if len(payload) < MIN_SIZE:
        return VerifiedPayload(-1, f"payload of {len(payload)} bytes")
    magic, value, crc, sent_ms, length = _HEAD.unpack_from(payload)
    if magic != MAGIC:
        return VerifiedPayload(-1, f"magic {magic!r}")
    key_end = MIN_SIZE if length == NO_KEY else MIN_SIZE + length
    if key_end > len(payload):
        return VerifiedPayload(-1, f"key length {length} in {len(payload)} bytes")
    echo = payload[MIN_SIZE:key_end]
    if (None if length == NO_KEY else echo) != key:
        return VerifiedPayload(-1, f"key {key!r} instead of {echo!r}, value {value}")
    digest = crc32c(payload[_VALUE_FROM:_CRC_FROM] + payload[_TIMESTAMP_FROM:key_end])
    if headers:
        digest = _digest_of_headers(headers, digest)
    if crc32c(payload[key_end:], digest) != crc:
        return VerifiedPayload(-1, f"checksum, value {value}")
    if timestamp_ms not in (sent_ms, NOT_KNOWN) and sent_ms != NOT_PROMISED:
        return VerifiedPayload(-1, f"timestamp {timestamp_ms} instead of {sent_ms}, value {value}")
    # Runs for each record read, and the class itself would cost another call with keywords.
    return tuple.__new__(VerifiedPayload, (value, ""))


def _padding(value: int, length: int) -> bytes:
    if length > len(_PADDING):
        return (_PADDING * (length // len(_PADDING) + 1))[:length]
    start = value % (len(_PADDING) - length + 1)
    return _PADDING[start : start + length]


def _digest_of_headers(headers: Headers, digest: int) -> int:
    """Return the CRC-32C of some bytes with the headers after them. `digest` is the CRC-32C of these bytes alone."""
    for name, content in headers:
        encoded = name.encode()
        digest = crc32c(_LENGTH.pack(len(encoded)) + encoded, digest)
        digest = crc32c(_LENGTH.pack(-1 if content is None else len(content)) + (content or b""), digest)
    return digest
