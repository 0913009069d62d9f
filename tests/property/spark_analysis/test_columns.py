"""Columns of many batches hold what single records hold."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall.broker.protocol.records import HEADER_SIZE, encode_batch, read_header
from squall.spark_analysis.load import columns
from squall.spark_analysis.load.columns import DecompressedBatch, RecordColumns, columns_of
from squall.workloads.load.ranges import OffsetRange
from squall.workloads.load.reading import CorruptBatch, RangeReader, ReadBatch
from tests.support.effort import examples

contents = st.none() | st.binary(max_size=9) | st.sampled_from([b"x" * 63, b"y" * 64, b"z" * 8_200])
of_headers = st.lists(st.tuples(st.text(max_size=3), contents), max_size=2)
records = st.tuples(st.integers(1, 70), st.integers(-(2**40), 2**40), contents, contents, of_headers)
batch = st.tuples(st.lists(records, min_size=1, max_size=5), st.integers(0, 4), st.integers(0, 1))
batches = st.lists(batch, min_size=1)


def encoded(drawn: Sequence[tuple[Sequence[tuple], int, int]]) -> tuple[bytes, int]:  # type: ignore[type-arg]
    """Return the batches of a log, and its end. A drawn record says by how much its offset follows the one before."""
    log, offset = b"", 0
    for of_batch, codec, timestamp_type in drawn:
        placed = [((offset := offset + step), *rest) for step, *rest in of_batch]
        log += encode_batch(placed, base_offset=placed[0][0], codec=codec, timestamp_type=timestamp_type)
        offset += 1
    return log, offset


def decompressed(found: Sequence[ReadBatch]) -> list[DecompressedBatch]:
    return [DecompressedBatch(each, each.body) for each in found]


def plain(read: RecordColumns) -> list[tuple[object, ...]]:
    of_headers = [list(each) for each in read.headers]
    offsets, timestamps = read.offsets.tolist(), read.timestamps.tolist()
    return list(zip(offsets, timestamps, read.keys.to_pylist(), read.values.to_pylist(), of_headers, strict=True))


@settings(max_examples=examples(150))
@given(batches, st.data())
def test_columns_are_those_of_single_records(drawn: list, data: st.DataObject) -> None:  # type: ignore[type-arg]
    log, end = encoded(drawn)
    first = data.draw(st.integers(0, end - 1))
    reader = RangeReader(OffsetRange("t", 0, first, data.draw(st.integers(first + 1, end)), compacted=True))
    found = decompressed(reader.take(memoryview(log), None))
    if found:
        fast, slow = columns._decoded(found), columns._one_by_one(found)
        assert plain(fast) == plain(slow)
        assert fast.counts == slow.counts


@settings(max_examples=examples(150))
@given(batches, st.data())
def test_damaged_records_are_an_error_or_what_single_records_are(
    drawn: list, data: st.DataObject  # type: ignore[type-arg]
) -> None:
    log = bytearray(encoded([(each, 0, kind) for each, _, kind in drawn])[0])
    header = read_header(memoryview(log), 0)
    log[data.draw(st.integers(HEADER_SIZE, header.size - 1))] = data.draw(st.integers(0, 255))
    read = ReadBatch(header, memoryview(log)[: header.size], "t-0", header.base_offset, header.next_offset)
    found = decompressed([read])
    try:
        expected = plain(columns._one_by_one(found))
    except CorruptBatch:
        with pytest.raises(CorruptBatch, match="^t-0: "):
            columns_of(found)
    else:
        assert plain(columns_of(found)) == expected
