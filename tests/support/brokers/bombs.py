"""Small batches that hold more than anybody would look through."""

from __future__ import annotations

from struct import pack_into

from crc32c import crc32c

from squall.broker.protocol.compression import compress
from squall.broker.protocol.records import HEADER_SIZE, Record, encode_batch

SMALLEST_RECORD = bytes((12, 0, 0, 0, 1, 1, 0))
"""Six bytes long, without key, value and headers."""


def many_records(count: int, newest_ms: int, *, codec: int = 4) -> bytes:
    """A batch of the smallest records, none of which is as late as the header says: a search for a late one has to
    read all of them. Packed with zstd, 9.6 million take 6 KB. The header tells the truth about their number.
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
