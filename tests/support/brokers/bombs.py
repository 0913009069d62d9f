"""Builds record batches of few bytes that unpack to millions of records."""

from __future__ import annotations

from struct import pack_into

from crc32c import crc32c

from squall.broker.protocol.compression import compress
from squall.broker.protocol.records import HEADER_SIZE, Record, encode_batch

SMALLEST_RECORD = bytes((12, 0, 0, 0, 1, 1, 0))
"""One encoded record of six bytes behind its length: no key, an empty value, no headers."""


def many_records(count: int, newest_ms: int, *, codec: int = 4) -> bytes:
    """Return a batch of `count` of the smallest records. Its header claims the timestamp `newest_ms`, but no record is
    as late: a search by time has to read all of them. The record count in the header is right. With zstd, 9.6 million
    records take 6 KB.
    """
    body = SMALLEST_RECORD * count
    first = encode_batch([Record(0, newest_ms - 60_000, None, b"")])
    batch = bytearray(first[:HEADER_SIZE] + (compress(codec, body) if codec else body))
    pack_into(">i", batch, 8, len(batch) - 12)
    pack_into(">h", batch, 21, codec)
    pack_into(">i", batch, 23, count - 1)
    pack_into(">q", batch, 35, newest_ms)
    pack_into(">i", batch, 57, count)
    pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)
