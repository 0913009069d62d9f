"""Record batches: decoding returns what was encoded, other implementations agree, and no batch can harm its reader."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import warnings

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.broker.protocol import compression, records
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.records import Record
from tests.property.protocol.hostile import mutations, truncations
from tests.support.effort import examples

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

CODECS = range(5)
content = st.one_of(st.none(), st.binary(max_size=8), st.sampled_from((64, 127, 128, 9000)).map(bytes))
header_lists = st.lists(st.tuples(st.text(max_size=4), content), max_size=3)
timestamps = st.integers(0, 1 << 42)


@st.composite
def batches(draw: st.DrawFn) -> list[Record]:
    """Records with ascending offsets."""
    gaps = draw(st.lists(st.sampled_from((1, 1, 1, 2, 70, 9000)), min_size=1, max_size=8))
    offset, found = draw(st.integers(0, 1 << 40)), []
    for gap in gaps:
        found.append(Record(offset, draw(timestamps), draw(content), draw(content), draw(header_lists)))
        offset += gap
    return found


def _as_read(batch: list[Record]) -> list[Record]:
    return [record._replace(headers=list(record.headers) or ()) for record in batch]


@settings(max_examples=examples(40))
@given(batch=batches(), codec=st.sampled_from(CODECS))
def test_what_is_written_is_read(batch: list[Record], codec: int) -> None:
    raw = records.encode_batch(batch, base_offset=batch[0].offset, codec=codec, leader_epoch=7)
    assert records.decode_records(memoryview(raw)) == _as_read(batch)
    header = records.read_header(memoryview(raw), 0)
    assert (header.size, header.codec, header.leader_epoch, header.magic) == (len(raw), codec, 7, 2)
    assert (header.base_offset, header.last_offset) == (batch[0].offset, batch[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in batch)
    assert header.record_count == len(batch)


@settings(max_examples=examples(25))
@given(batch=batches(), codec=st.sampled_from((0, 1)))
def test_kafka_python_reads_what_we_write(batch: list[Record], codec: int) -> None:
    raw = records.encode_batch(batch, base_offset=batch[0].offset, codec=codec)
    theirs = DefaultRecordBatch(bytearray(raw))
    assert theirs.validate_crc()
    read = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in theirs]
    assert read == [(*record[:4], list(record.headers)) for record in batch]


@settings(max_examples=examples(25))
@given(batch=batches(), codec=st.sampled_from((0, 1)))
def test_we_read_what_kafka_python_writes(batch: list[Record], codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 10_000_000)
    for index, record in enumerate(batch):
        headers = [(name, value) for name, value in record.headers if value is not None]
        builder.append(index, record.timestamp, record.key, record.value, headers)
    read = records.decode_records(memoryview(bytes(builder.build())))
    assert [(r.timestamp, r.key, r.value) for r in read] == [record[1:4] for record in batch]


def test_offset_and_leader_epoch_lie_outside_the_crc() -> None:
    raw = bytearray(records.encode_batch([Record(0, 5, b"k", b"v")]))
    struct.pack_into(">q", raw, 0, 1 << 40)
    struct.pack_into(">i", raw, 12, 99)
    view = memoryview(raw)
    assert records.check_crc(view, 0, len(raw))
    raw[-1] ^= 1
    assert not records.check_crc(view, 0, len(raw))
    with pytest.raises(MalformedFrame, match="CRC"):
        records.decode_records(view)


def test_flags_and_producer_travel_in_the_header() -> None:
    raw = records.encode_batch(
        [Record(0, 1, b"", b""), Record(3, 2, b"", b"")],
        producer_id=1 << 40,
        producer_epoch=32767,
        base_sequence=(1 << 31) - 2,
        transactional=True,
        control=True,
        timestamp_type=1,
    )
    header = records.read_header(memoryview(raw), 0)
    assert header.is_transactional
    assert header.is_control
    assert header.timestamp_type == 1
    assert (header.producer_id, header.producer_epoch) == (1 << 40, 32767)
    assert header.last_sequence == 1  # wrapped behind 2^31 - 1
    assert records.decode_records(memoryview(raw)) == []
    assert [r.timestamp for r in records.decode_records(memoryview(raw), with_control=True)] == [2, 2]


def test_a_batch_that_the_end_cuts_short_is_left_out() -> None:
    first, second = (records.encode_batch([Record(i, 1, None, b"v" * 50)], base_offset=i) for i in range(2))
    for cut in range(len(first), len(first) + len(second)):
        found = list(records.batches(memoryview(first + second)[:cut]))
        assert [(header.base_offset, start, end) for header, start, end in found] == [(0, 0, len(first))]
    assert len(list(records.batches(memoryview(first + second)))) == 2


@pytest.mark.parametrize("codec", CODECS)
def test_mutated_batches_are_malformed_or_records(codec: int) -> None:
    batch = [Record(i, i, b"key%d" % i, b"value" * i, [("h", None)]) for i in range(12)]
    raw = records.encode_batch(batch, codec=codec)
    for frame in (*mutations(raw, examples(300), seed=codec), *truncations(raw)):
        try:
            assert isinstance(records.decode_records(memoryview(frame), check=False, max_bytes=1 << 16), list)
        except MalformedFrame:
            pass


def _with_body(body: bytes, count: int, codec: int = 0) -> memoryview:
    """Return a batch with this body and a correct CRC."""
    raw = bytearray(records.encode_batch([Record(0, 0, None, None)])[: records.HEADER_SIZE])
    struct.pack_into(">i", raw, 8, records.HEADER_SIZE - 12 + len(body))
    struct.pack_into(">h", raw, 21, codec)
    struct.pack_into(">i", raw, 57, count)
    raw += body
    struct.pack_into(">I", raw, 17, crc32c(memoryview(raw)[21:]))
    return memoryview(raw)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xff\xff\xff\x0f" + bytes(60),
        b"\xff" * 80,
        b"\x0c\0\0\0\xfe\xff\xff\xff\x0f\0\0" + bytes(60),  # a key of 2^31 - 1 bytes
        b"\x0c\0\0\0\x03\0\0" + bytes(60),  # a key of -2 bytes
        b"\x0c\0\0\0\0\0\x7f" + bytes(60),  # -64 headers
        b"\x0c\0\0\0\0\0\xfe\xff\xff\xff\x0f" + bytes(60),  # 2^31 - 1 headers
        b"\x10\0\0\0\0\0\x02\x01\0" + bytes(60),  # a header without a name
        b"\x10\0\0\0\0\0\0\0\0",  # fields that end before their record
        b"\x0c\0\0\0\0\0\0" + bytes(3),  # bytes behind the last record
    ],
)
def test_lengths_that_lie_within_records_are_malformed(body: bytes) -> None:
    with pytest.raises(MalformedFrame):
        records.decode_records(_with_body(body, 1))


def test_a_record_that_claims_the_bytes_of_the_next_one_is_malformed() -> None:
    fields = bytes(6)
    with pytest.raises(MalformedFrame, match="before the record"):
        records.decode_records(_with_body(b"\x1a" + fields + b"\x0c" + fields, 2))


@pytest.mark.parametrize("count", (-1, 2, 1 << 20, (1 << 31) - 1))
def test_a_count_that_the_bytes_cannot_hold_is_malformed(count: int) -> None:
    with pytest.raises(MalformedFrame):
        records.decode_records(_with_body(b"\x0c\0\0\x01\x01\x01\0"[:7], count))


BOMBS = {
    1: gzip.compress(bytes(64 << 20)),
    2: bytes(cramjam.snappy.compress_raw(bytes(64 << 20))),
    3: bytes(cramjam.lz4.compress(bytes(64 << 20))),
    4: bytes(cramjam.zstd.compress(bytes(64 << 20))),
}


@pytest.mark.parametrize("codec", BOMBS)
def test_a_batch_that_unpacks_to_more_than_the_limit_is_malformed_and_cheap(codec: int) -> None:
    view = _with_body(BOMBS[codec], 1, codec)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedFrame):
            records.decode_records(view, max_bytes=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_snappy_that_claims_more_than_its_bytes_could_hold_is_refused_before_unpacking() -> None:
    with pytest.raises(MalformedFrame, match="claim"):
        compression.decompress(2, memoryview(b"\xff\xff\xff\x7f" + bytes(10)))


def test_the_java_librarys_snappy_stream_is_read() -> None:
    blocks = [bytes(cramjam.snappy.compress_raw(piece)) for piece in (b"first " * 9, b"second" * 9)]
    stream = b"\x82SNAPPY\x00" + bytes(8) + b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    assert compression.decompress(2, memoryview(stream)) == b"first " * 9 + b"second" * 9
    for cut in range(17, len(stream)):
        if cut != 16 + 4 + len(blocks[0]):
            with pytest.raises(MalformedFrame):
                compression.decompress(2, memoryview(stream)[:cut])


def test_lz4_frames_have_independent_blocks() -> None:
    # Kafka's Java client refuses linked ones.
    data = b"".join(b"%08d" % i for i in range(30_000)) + bytes(200_000)
    frame = compression.compress(3, data)
    assert frame[4] & 0x20
    assert bytes(cramjam.lz4.decompress(frame)) == data
    assert compression.decompress(3, memoryview(frame)) == data


@pytest.mark.parametrize("codec", (5, 6, 7, -1))
def test_unknown_codecs_are_malformed_to_read_and_refused_to_write(codec: int) -> None:
    with pytest.raises(MalformedFrame):
        compression.decompress(codec, memoryview(b""))
    with pytest.raises(ValueError, match="codec"):
        compression.compress(codec, b"")


def test_empty_batches_and_descending_offsets_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        records.encode_batch([])
    with pytest.raises(ValueError, match="does not follow"):
        records.encode_batch([Record(1, 0, None, None), Record(1, 0, None, None)])
