"""Encodes and decodes record batches of format 2 (KIP-98): headers for Produce and Fetch, whole records for clients,
tools and logs.

When a batch passes through the broker, this module reads its header of 61 bytes, not its records. CRC-32C covers byte
21 to the end of a batch, so base offset and leader epoch can be rewritten in place. Timestamps are milliseconds since
1970, -1 for none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct, error, pack_into
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from squall.broker.protocol.compression import MAX_DECOMPRESSED_BYTES, NONE, compress, decompress
from squall.broker.protocol.errors import MalformedFrame

HEADER: Final = Struct(">qiibIhiqqqhii")
"""Packs baseOffset, length (of the bytes after it), leaderEpoch, magic, crc, attributes, lastOffsetDelta,
baseTimestamp, maxTimestamp, producerId, producerEpoch, baseSequence, recordCount.
"""

HEADER_SIZE: Final = 61
LENGTH_OVERHEAD: Final = 12
"""Counts the bytes of a batch that `length` does not count: base offset and the length itself."""
CRC_FROM: Final = 21
"""Is the position of the first byte that the CRC covers."""
SMALLEST_RECORD: Final = 7
"""Is the size, in bytes, of a record without key, value and headers."""

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
SEQUENCE_MASK: Final = 0x7FFFFFFF
"""Wraps sequence numbers from 2^31 - 1 to 0."""
DELETE_HORIZON_BIT: Final = 0x40

_CRC: Final = Struct(">I")
_TWO_BYTES: Final = Struct("<H").unpack_from
_FIRST_FIELDS: Final = Struct("<HBBBB").unpack_from
"""Unpacks the beginning of most records: a size of two bytes, attributes, timestamp delta, offset delta, the key's
length.
"""
_TWO_BYTE_MASK: Final = 0x8081
_TWO_BYTE_LENGTH: Final = 0x0080
"""Recognises a length that takes two bytes as a zigzag varint. For such a varint, read as a little-endian number
`pair`, `pair & _TWO_BYTE_MASK` has this value: the first byte has the continuation bit, the second byte has not, and
the lowest bit, the sign, is 0.
"""
_ZIGZAG: Final = tuple(n >> 1 ^ -(n & 1) for n in range(128))
"""Maps each zigzag varint of one byte to its value."""


class BatchHeader(NamedTuple):
    """Represents the 61 bytes before a batch's records."""

    base_offset: int
    length: int
    """Counts the bytes after this field: the batch's size less 12."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Returns the size of the whole batch, in bytes."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Returns the offset of the last record that the producer put into the batch. Compaction may have removed that
        record.
        """
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Returns the lowest offset at which the next batch may begin."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Returns 0 for none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 have no meaning."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """Returns 0 if the producer set the timestamps; 1 if the leader set maxTimestamp, which then applies to all
        records.
        """
        return self.attributes >> 3 & 1

    @property
    def is_transactional(self) -> bool:
        """Is True if the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Is True for markers and other records that no consumer sees."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def last_sequence(self) -> int:
        """Returns the sequence number of the last record; -1 without a producer id."""
        return -1 if self.base_sequence < 0 else self.base_sequence + self.last_offset_delta & SEQUENCE_MASK


class Record(NamedTuple):
    """Represents one record. `offset` and `timestamp` are absolute."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def read_header(view: memoryview, at: int) -> BatchHeader:
    """Return the header of the batch at byte `at`. Raises MalformedFrame if fewer than 61 bytes are left; nothing else
    is checked.
    """
    try:
        return tuple.__new__(BatchHeader, HEADER.unpack_from(view, at))
    except error as problem:
        raise MalformedFrame(f"batch header: {problem}") from problem


def batches(view: memoryview) -> Iterator[tuple[BatchHeader, int, int]]:
    """Yield header, start and end position of every whole batch, in order.

    A batch that the end of `view` cuts short is left out: Fetch responses may end with one. Raises MalformedFrame if a
    batch has an impossible length, or another magic than 2.
    """
    at, end = 0, len(view)
    while end - at >= HEADER_SIZE:
        header = tuple.__new__(BatchHeader, HEADER.unpack_from(view, at))
        length = header.length
        if length < HEADER_SIZE - LENGTH_OVERHEAD:
            raise MalformedFrame(f"a batch of length {length}")
        if header.magic != 2:
            raise MalformedFrame(f"a batch of magic {header.magic}")
        stop = at + LENGTH_OVERHEAD + length
        if stop > end:
            return
        yield header, at, stop
        at = stop


def check_crc(view: memoryview, start: int, end: int) -> bool:
    """Return whether the CRC-32C of the batch in view[start:end] is right. Return False if it is shorter than a header.
    """
    if end - start < HEADER_SIZE or end > len(view):
        return False
    return bool(_CRC.unpack_from(view, start + 17)[0] == crc32c(view[start + CRC_FROM : end]))


def encode_batch(
    records: Sequence[Record | tuple[Any, ...]],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    codec: int = NONE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = 0,
) -> bytes:
    """Encode one batch of at least one record. A tuple has the fields of a `Record`.

    The offsets of the records must ascend; they are shifted so that the first is `base_offset`. With timestamp_type 1
    readers take the largest timestamp for every record. Raises ValueError if there is no record, if the offsets do not
    ascend, or if a number does not fit into its field of the header.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    first_offset, base_timestamp = records[0][0], records[0][1]
    body = bytearray()
    max_timestamp = base_timestamp
    previous = first_offset - 1
    for offset, timestamp, key, value, headers in records:
        if offset <= previous:
            raise ValueError(f"offset {offset} does not follow {previous}")
        previous = offset
        max_timestamp = max(max_timestamp, timestamp)
        _append_record(body, timestamp - base_timestamp, offset - first_offset, key, value, headers)
    attributes = codec | timestamp_type << 3 | transactional << 4 | control << 5
    payload = bytes(body) if codec == NONE else compress(codec, bytes(body))
    size = HEADER_SIZE + len(payload)
    out = bytearray(size)
    try:
        HEADER.pack_into(
            out,
            0,
            base_offset,
            size - LENGTH_OVERHEAD,
            leader_epoch,
            2,
            0,
            attributes,
            previous - first_offset,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    except error as problem:
        raise ValueError(f"batch header: {problem}") from problem
    out[HEADER_SIZE:] = payload
    pack_into(">I", out, 17, crc32c(memoryview(out)[CRC_FROM:]))
    return bytes(out)


def _append_record(
    body: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> None:
    out = bytearray(1)
    _put_varint(out, timestamp_delta)
    _put_varint(out, offset_delta)
    _put_bytes(out, key)
    _put_bytes(out, value)
    _put_varint(out, len(headers))
    for name, content in headers:
        _put_bytes(out, name.encode())
        _put_bytes(out, content)
    _put_varint(body, len(out))
    body += out


def _put_varint(out: bytearray, value: int) -> None:
    zigzag = value << 1 if value >= 0 else ~value << 1 | 1
    while zigzag > 127:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    out.append(zigzag)


def _put_bytes(out: bytearray, content: bytes | None) -> None:
    if content is None:
        out.append(1)
        return
    _put_varint(out, len(content))
    out += content


def decode_records(
    view: memoryview, *, max_bytes: int = MAX_DECOMPRESSED_BYTES, with_control: bool = False, check: bool = True
) -> list[Record]:
    """Return the records of all whole batches in `view`, without control batches unless `with_control`.

    `max_bytes` limits what each batch may decompress to; `check` says whether to verify CRCs. Raises only
    MalformedFrame.
    """
    found: list[Record] = []
    for header, start, end in batches(view):
        if header.is_control and not with_control:
            continue
        if check and not check_crc(view, start, end):
            raise MalformedFrame(f"the batch at offset {header.base_offset} has a wrong CRC")
        found += decode_batch(header, view[start:end], max_bytes)
    return found


def decode_batch(header: BatchHeader, batch: memoryview, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """Return the records of one batch; `batch` begins with its header. Raises only MalformedFrame."""
    codec = header.attributes & CODEC_MASK
    packed = batch[HEADER_SIZE:]
    body = packed.tobytes() if codec == NONE else decompress(codec, packed, max_bytes)
    if not 0 <= header.record_count <= len(body) // SMALLEST_RECORD:
        raise MalformedFrame(f"a batch of {header.record_count} records in {len(body)} bytes")
    try:
        return _read_records(header, body)
    except (IndexError, UnicodeDecodeError, error) as problem:
        raise MalformedFrame(f"record: {problem}") from problem


def _read_records(header: BatchHeader, body: bytes) -> list[Record]:
    """Return the records that fill `body`. Records of the most common form are read without function calls, to save
    time. Such a record has no headers. Its size and its value's length take two bytes each; its timestamp delta, its
    offset delta and its key's length take one byte each.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fixed_timestamp = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
    found: list[Record] = []
    at, limit = 0, len(body)
    for _ in range(header.record_count):
        # The byte left out is the record's attributes, which mean nothing yet.
        pair, _, stamp_delta, delta, size = _FIRST_FIELDS(body, at)
        if pair & _TWO_BYTE_MASK == _TWO_BYTE_LENGTH and stamp_delta < 128 and delta < 128:
            end = at + 2 + (pair >> 1 & 63 | pair >> 8 << 6)
            timestamp, offset = base_timestamp + _ZIGZAG[stamp_delta], base_offset + _ZIGZAG[delta]
            at += 5
        else:
            size, at = read_varint(body, at)
            if size < 0:
                raise MalformedFrame(f"a record of {size} bytes")
            end = at + size
            delta, at = read_varint(body, at + 1)
            timestamp = base_timestamp + delta
            delta, at = read_varint(body, at)
            offset = base_offset + delta
            size = body[at]
        if end > limit:
            raise MalformedFrame(f"a record that ends {end - limit} bytes behind its batch")
        if size < 128 and not size & 1 and (stop := at + 1 + (size >> 1)) <= end:
            key: bytes | None = body[at + 1 : stop]
            at = stop
        else:
            key, at = _read_bytes(body, at, end)
        (pair,) = _TWO_BYTES(body, at)
        if pair & _TWO_BYTE_MASK == _TWO_BYTE_LENGTH and (stop := at + 2 + (pair >> 1 & 63 | pair >> 8 << 6)) <= end:
            value: bytes | None = body[at + 2 : stop]
            at = stop
        else:
            value, at = _read_bytes(body, at, end)
        headers: Sequence[tuple[str, bytes | None]] = ()
        if body[at]:
            headers, at = read_headers(body, at, end)
        else:
            at += 1
        if at != end:
            raise MalformedFrame(f"the fields of a record end {end - at} bytes before the record")
        stamp = timestamp if fixed_timestamp is None else fixed_timestamp
        found.append(tuple.__new__(Record, (offset, stamp, key, value, headers)))
    if at != limit:
        raise MalformedFrame(f"{limit - at} bytes behind the last record of a batch")
    return found


def read_headers(body: bytes, at: int, end: int) -> tuple[list[tuple[str, bytes | None]], int]:
    """Read the headers of a record that ends at `end`, from their count at `at` on. Return them and the position after
    them. Raises MalformedFrame, IndexError or UnicodeDecodeError.
    """
    count, at = read_varint(body, at)
    if not 0 <= count <= (end - at) // 2:
        raise MalformedFrame(f"a record with {count} headers in {end - at} bytes")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _read_bytes(body, at, end)
        content, at = _read_bytes(body, at, end)
        if name is None:
            raise MalformedFrame("a record header without a name")
        headers.append((name.decode(), content))
    return headers, at


def _read_bytes(body: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size = body[at]
    if size < 128:
        at += 1
        size = size >> 1 ^ -(size & 1)
    else:
        size, at = read_varint(body, at)
    if size < 0:
        if size != -1:
            raise MalformedFrame(f"a record's field of length {size}")
        return None, at
    stop = at + size
    if stop > end:
        raise MalformedFrame(f"a record's field of {size} bytes, {end - at} are left")
    return body[at:stop], stop


def read_varint(view: bytes | bytearray, at: int) -> tuple[int, int]:
    """Read a zigzag varint of at most ten bytes. Return the number and the position after it."""
    byte = view[at]
    at += 1
    if byte < 128:
        return byte >> 1 ^ -(byte & 1), at
    value, shift = byte & 127, 7
    byte = view[at]
    if byte < 128:  # two bytes: up to 8 KB, as most records are
        value |= byte << 7
        return value >> 1 ^ -(value & 1), at + 1
    while shift < 70:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value >> 1 ^ -(value & 1), at
        shift += 7
    raise MalformedFrame("a varint of more than ten bytes")
