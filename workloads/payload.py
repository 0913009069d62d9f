"""What a record's value field holds: a globally unique value that proves itself.

Layout, big-endian: magic `SQ1`, value u64, CRC-32C u32, key length u16 (0xFFFF where there is no key), the key again,
padding up to the workload's record size. The CRC covers the value, the key with its length, the headers and the
padding, so that damage to any of them, or a key or header that travelled with another record, is seen by a reader who
knows nothing of what was sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from checkers.history.values import SEQUENCE_BITS

Headers = Sequence[tuple[str, bytes | None]]

MAGIC = b"SQ1"
MIN_SIZE = 3 + 8 + 4 + 2
NO_KEY = 0xFFFF

_HEAD = Struct(">3sQIH")
_VALUE_FROM, _CRC_FROM, _LENGTH_FROM = 3, 11, 15
"""First bytes of value, CRC and key length."""
_VALUE = Struct(">Q")
_VALUE_LENGTH = Struct(">QH")
_LENGTH = Struct(">i")
_PAD_BLOCKS = 2048


def _make_padding() -> bytes:
    """64 KiB that no codec can shrink, the same in every process: padding is a window of it."""
    return b"".join(hashlib.sha256(b"squall padding %d" % block).digest() for block in range(_PAD_BLOCKS))


_PADDING = _make_padding()


class Verified(NamedTuple):
    """What a payload says."""

    value: int
    """The value, or -1 where the payload does not verify."""
    why: str
    """Empty, or what is wrong with the payload."""


def value_of(process: int, sequence: int) -> int:
    """The globally unique value of a process's record. Both from 0."""
    assert 0 <= sequence < 1 << SEQUENCE_BITS, sequence
    return process << SEQUENCE_BITS | sequence


def make(value: int, key: bytes | None, headers: Headers = (), size: int = MIN_SIZE) -> tuple[bytes, int]:
    """The payload of `value`, and its CRC as the digest to record.

    `size` bytes long, or as long as the key needs where that is more. Keys are shorter than 65,535 bytes.
    """
    echo = key or b""
    assert len(echo) < NO_KEY, len(echo)
    room = size - MIN_SIZE - len(echo)
    padding = _padding(value, room) if room > 0 else b""
    length = NO_KEY if key is None else len(echo)
    digest = _digest_of_headers(headers, crc32c(_VALUE_LENGTH.pack(value, length) + echo))
    crc = crc32c(padding, digest)
    return _HEAD.pack(MAGIC, value, crc, length) + echo + padding, crc


def beginning(value: int) -> bytes:
    """What the payload of `value`, and of no other value, begins with."""
    return MAGIC + _VALUE.pack(value)


def verify(payload: bytes | None, key: bytes | None, headers: Headers = ()) -> Verified:
    """The value in a record that was read, or -1 and why it cannot be the record that was sent."""
    if payload is None:
        return Verified(-1, "no payload")
    if len(payload) < MIN_SIZE:
        return Verified(-1, f"payload of {len(payload)} bytes")
    magic, value, crc, length = _HEAD.unpack_from(payload)
    if magic != MAGIC:
        return Verified(-1, f"magic {magic!r}")
    key_end = MIN_SIZE if length == NO_KEY else MIN_SIZE + length
    if key_end > len(payload):
        return Verified(-1, f"key length {length} in {len(payload)} bytes")
    echo = payload[MIN_SIZE:key_end]
    if (None if length == NO_KEY else echo) != key:
        return Verified(-1, f"key {key!r} instead of {echo!r}, value {value}")
    digest = crc32c(payload[_VALUE_FROM:_CRC_FROM] + payload[_LENGTH_FROM:key_end])
    if headers:
        digest = _digest_of_headers(headers, digest)
    if crc32c(payload[key_end:], digest) != crc:
        return Verified(-1, f"checksum, value {value}")
    return tuple.__new__(Verified, (value, ""))


def _padding(value: int, length: int) -> bytes:
    if length > len(_PADDING):
        return (_PADDING * (length // len(_PADDING) + 1))[:length]
    start = value % (len(_PADDING) - length + 1)
    return _PADDING[start : start + length]


def _digest_of_headers(headers: Headers, digest: int) -> int:
    """`digest`, which ends before the headers, with them."""
    for name, content in headers:
        encoded = name.encode()
        digest = crc32c(_LENGTH.pack(len(encoded)) + encoded, digest)
        digest = crc32c(_LENGTH.pack(-1 if content is None else len(content)) + (content or b""), digest)
    return digest
