"""A load reads a range of offsets, and counts the offsets without a record."""

from __future__ import annotations

import pytest

from squall.broker.protocol.records import HEADER_SIZE, encode_batch
from squall.workloads.load.ranges import OffsetRange, split
from squall.workloads.load.reading import CorruptBatch, OffsetsGone, RangeReader, SkippedOffsets

READ_COMMITTED = 1


def data(base: int, count: int = 2, producer: int = -1) -> bytes:
    records = [(base + n, 1_000 + n, b"k", b"v%d" % (base + n), ()) for n in range(count)]
    return encode_batch(records, base_offset=base, producer_id=producer, transactional=producer >= 0)


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    key, value = bytes((0, 0, 0, commit)), bytes(6)
    records = [(base, 1_000, key, value, ())]
    return encode_batch(records, base_offset=base, producer_id=producer, transactional=True, control=True)


def wanted(start: int, end: int, *, compacted: bool = False) -> OffsetRange:
    return OffsetRange("orders", 3, start, end, compacted=compacted)


def offsets(reader: RangeReader, log: bytes, aborted: list[tuple[int, int]] | None = None) -> list[int]:
    return [record.offset for batch in reader.take(memoryview(log), aborted) for record in batch.records]


@pytest.mark.parametrize(
    ("size", "most", "found"),
    [
        (0, 5, []),
        (5, 5, [(7, 12)]),
        (6, 5, [(7, 10), (10, 13)]),
        (7, 3, [(7, 9), (9, 11), (11, 14)]),
    ],
)
def test_a_long_range_is_cut_into_even_ones(size: int, most: int, found: list[tuple[int, int]]) -> None:
    assert [(each.start, each.end) for each in split(wanted(7, 7 + size), most)] == found


def test_a_range_begins_and_ends_within_batches() -> None:
    reader = RangeReader(wanted(1, 5))
    assert offsets(reader, data(0) + data(2) + data(4)) == [1, 2, 3, 4]
    assert (reader.position, reader.done, reader.skipped) == (5, True, SkippedOffsets())


def test_a_range_is_read_over_several_responses_which_may_overlap() -> None:
    reader = RangeReader(wanted(0, 6))
    assert offsets(reader, data(0) + data(2)[:40]) == [0, 1]
    assert offsets(reader, data(0) + data(2)) == [2, 3]
    assert not reader.done
    assert offsets(reader, data(4) + data(6)) == [4, 5]
    assert reader.done


def test_records_of_aborted_transactions_and_markers_are_counted() -> None:
    log = data(0, producer=7) + data(2, producer=8) + marker(4, 7, commit=False) + marker(5, 8, commit=True)
    reader = RangeReader(wanted(0, 6), READ_COMMITTED)
    assert offsets(reader, log, [(7, 0)]) == [2, 3]
    assert reader.skipped == SkippedOffsets(control=2, aborted=2)
    everything = RangeReader(wanted(0, 6))
    assert offsets(everything, log) == [0, 1, 2, 3]
    assert everything.skipped == SkippedOffsets(control=2)


def test_a_transaction_after_an_aborted_one_of_its_producer_is_read() -> None:
    log = data(0, producer=7) + marker(2, 7, commit=False) + data(3, producer=7) + marker(5, 7, commit=True)
    assert offsets(RangeReader(wanted(0, 6), READ_COMMITTED), log, [(7, 0)]) == [3, 4]


def test_a_hole_is_compacted_or_lost() -> None:
    log = data(0) + data(5)
    compacted = RangeReader(wanted(0, 7, compacted=True))
    assert offsets(compacted, log) == [0, 1, 5, 6]
    assert compacted.skipped == SkippedOffsets(compacted=3)
    with pytest.raises(OffsetsGone, match="orders-3: offsets 2 to 4 are gone: the next batch .* offset 5"):
        offsets(RangeReader(wanted(0, 7)), log)
    tolerant = RangeReader(wanted(0, 7), allow_gaps=True)
    assert offsets(tolerant, log) == [0, 1, 5, 6]
    assert tolerant.skipped == SkippedOffsets(lost=((2, 5),))


def test_a_hole_over_the_end_of_the_range_ends_it() -> None:
    reader = RangeReader(wanted(0, 4, compacted=True))
    assert offsets(reader, data(0) + data(9)) == [0, 1]
    assert (reader.done, reader.skipped.compacted) == (True, 2)


def test_records_that_compaction_took_out_of_a_batch_are_counted() -> None:
    batch = encode_batch([(4, 1, b"k", b"v", ()), (7, 1, b"k", b"v", ())], base_offset=4)
    reader = RangeReader(wanted(4, 8, compacted=True))
    assert offsets(reader, batch) == [4, 7]
    assert reader.skipped == SkippedOffsets(compacted=2)


def test_what_is_before_the_log_start_is_gone() -> None:
    reader = RangeReader(wanted(0, 9), allow_gaps=True)
    reader.skip_to(3, "the log begins behind them")
    reader.skip_to(5, "the log begins behind them")
    assert (reader.position, reader.skipped.lost) == (5, ((0, 5),))
    reader.skip_to(50, "the log begins behind them")
    assert (reader.done, reader.skipped.lost) == (True, ((0, 9),))


@pytest.mark.parametrize("at", [17, HEADER_SIZE + 3], ids=["CRC", "record"])
def test_a_corrupt_batch_is_named(at: int) -> None:
    bad = bytearray(data(2))
    bad[at] ^= 0xFF
    reader = RangeReader(wanted(0, 4))
    with pytest.raises(CorruptBatch, match="orders-3, batch at offset 2: its CRC-32C is not 0x"):
        offsets(reader, data(0) + bytes(bad))
