"""Compresses and decompresses record batches with Kafka's four codecs, in the framing that every client reads
(mechanism L3 in docs/mechanisms.md).

The native library is imported on first use: a broker seldom decompresses what it stores. Decompression is bounded: the
output grows in steps up to the caller's limit, so that a small batch that claims a large size costs little.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import Any, Final

from squall.broker.protocol.errors import MalformedFrame

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
"""Are the values of a batch's codec bits."""

MAX_DECOMPRESSED_BYTES: Final = 256 << 20
"""Limits, by default, the bytes to which one batch may decompress."""

MOST_UNPACKED: Final = (1, 1100, 32, 256, 33_000, 0, 0, 0)
"""Gives, by codec (none, gzip, snappy, lz4, zstd), an upper limit of the bytes that one compressed byte decompresses
to; 0 for 5 to 7, which are no codecs.
"""
FIRST_STEP_BYTES: Final = 64 << 10

_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
_BIG: Final = Struct(">i")
_LITTLE: Final = Struct("<I")
# Frame version 1, independent blocks of at most 64 KiB, and the checksum of these two bytes. The library's own frames
# have linked blocks, which the Java client refuses.
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
_LZ4_BLOCK: Final = 64 << 10
_LZ4_STORED: Final = 1 << 31


def compress(codec: int, data: bytes) -> bytes:
    """Return `data` compressed by codec 1 to 4. Raises ValueError for another codec."""
    import cramjam

    match codec:
        case 1:
            return bytes(cramjam.gzip.compress(data))
        case 2:
            return bytes(cramjam.snappy.compress_raw(data))
        case 3:
            return _lz4_frame(data)
        case 4:
            return bytes(cramjam.zstd.compress(data))
    raise ValueError(f"no codec {codec}")


def decompress(codec: int, data: memoryview, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return `data` decompressed. Raises MalformedFrame for invalid bytes, for a codec other than 1 to 4, and for a
    result of more than `max_bytes`.
    """
    import cramjam

    match codec:
        case 1:
            return _bounded(cramjam.gzip, data, max_bytes)
        case 2:
            return _snappy(data, max_bytes)
        case 3:
            return _bounded(cramjam.lz4, data, max_bytes)
        case 4:
            return _bounded(cramjam.zstd, data, max_bytes)
    raise MalformedFrame(f"no codec {codec}")


def unpacked(codec: int, data: memoryview, max_bytes: int) -> bytes:
    """Return `data` decompressed, or a copy if it is not compressed."""
    return bytes(data) if codec == NONE else decompress(codec, data, max_bytes)


def unpacked_stepwise(codec: int, data: memoryview, max_bytes: int) -> Iterator[tuple[bytes | bytearray, bool]]:
    """Yield longer and longer prefixes of the decompressed `data`, as (prefix, whether it is all of the data).

    A caller that finds its record in a short prefix need not decompress the rest. Raises MalformedFrame for invalid
    bytes, an unknown codec, and data that decompresses to more than `max_bytes`.
    """
    import cramjam

    match codec:
        case 0:
            yield bytes(data), True
        case 1:
            yield from _growing(cramjam.gzip, data, max_bytes, FIRST_STEP_BYTES)
        case 2:
            yield _snappy(data, max_bytes), True
        case 3:
            yield from _growing(cramjam.lz4, data, max_bytes, FIRST_STEP_BYTES)
        case 4:
            yield from _growing(cramjam.zstd, data, max_bytes, FIRST_STEP_BYTES)
        case _:
            raise MalformedFrame(f"no codec {codec}")


def _bounded(library: Any, data: memoryview, max_bytes: int) -> bytes:
    for body, whole in _growing(library, data, max_bytes, max(FIRST_STEP_BYTES, 4 * len(data))):
        if whole:
            return bytes(body)
    raise AssertionError("unpacking ended without an end")


def _growing(library: Any, data: memoryview, max_bytes: int, size: int) -> Iterator[tuple[bytearray, bool]]:
    """Yield longer and longer prefixes of the decompressed `data`, as (prefix, whether it is all of the data). The
    first prefix has at most `size` bytes, and the next ones four times as many each. `library` is the codec's module of
    cramjam. Raises MalformedFrame for invalid data, and for more than `max_bytes`.
    """
    import cramjam

    size = min(max_bytes, size)
    while True:
        out = bytearray(size)
        try:
            written = library.decompress_into(data, out)
        except cramjam.DecompressionError as problem:
            # The library has one error for everything. Only this text means that the buffer is too small.
            if "whole buffer" not in str(problem):
                raise MalformedFrame(f"compressed records: {problem}") from problem
            if size == max_bytes:
                raise MalformedFrame(f"a batch that unpacks to more than {max_bytes} bytes") from problem
        else:
            del out[written:]
            yield out, True
            return
        yield out, False
        del out
        size = min(max_bytes, 4 * size)


def _snappy(data: memoryview, max_bytes: int) -> bytes:
    """Decompress raw snappy, or the blocks of the Java library's stream format."""
    if bytes(data[:8]) != _XERIAL:
        return _raw_snappy(data, max_bytes)
    pieces = []
    at, left = _XERIAL_HEADER, max_bytes
    while at < len(data):
        try:
            (size,) = _BIG.unpack_from(data, at)
        except error as problem:
            raise MalformedFrame(f"snappy stream: {problem}") from problem
        at += 4
        if not 0 < size <= len(data) - at:
            raise MalformedFrame(f"a snappy block of {size} bytes where {len(data) - at} are left")
        pieces.append(_raw_snappy(data[at : at + size], left))
        left -= len(pieces[-1])
        at += size
    return b"".join(pieces)


def _raw_snappy(data: memoryview, max_bytes: int) -> bytes:
    import cramjam

    try:
        claimed = cramjam.snappy.decompress_raw_len(data)
        if claimed > max_bytes or claimed > MOST_UNPACKED[SNAPPY] * len(data):
            raise MalformedFrame(f"{len(data)} bytes of snappy that claim to unpack to {claimed}, limit {max_bytes}")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as problem:
        raise MalformedFrame(f"compressed records: {problem}") from problem


def _lz4_frame(data: bytes) -> bytes:
    import cramjam

    pieces = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK):
        block = data[start : start + _LZ4_BLOCK]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            pieces += (_LITTLE.pack(len(packed)), packed)
        else:
            # A block that compression would make larger is stored as it is, which the highest bit of its size says.
            pieces += (_LITTLE.pack(len(block) | _LZ4_STORED), block)
    pieces.append(_LITTLE.pack(0))
    return b"".join(pieces)
