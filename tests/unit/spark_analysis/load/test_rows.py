"""Rows are those of the batches that a range reader returns."""

from __future__ import annotations

import pytest

from squall.broker.protocol.records import encode_batch
from squall.spark_analysis.load.rows import record_batches
from squall.workloads.load.ranges import OffsetRange
from squall.workloads.load.reading import LoadError, RangeReader


def test_rows_are_cut_by_what_is_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall.spark_analysis.load.rows.MOST_BYTES", 250)
    log = b"".join(
        encode_batch([(n, 7, b"k", b"v" * 100, ())], base_offset=n, codec=1, base_sequence=2**31 - 2, producer_id=3)
        for n in range(5)
    )
    wanted = OffsetRange("t", 4, 1, 5)
    found = RangeReader(wanted).take(memoryview(log), None)
    rows = list(record_batches(wanted, found, ("sequence", "codec"), headers=True))
    assert [each.num_rows for each in rows] == [2, 2]
    assert [row for each in rows for row in each["offset"].to_pylist()] == [1, 2, 3, 4]
    assert rows[0].slice(0, 1).to_pylist()[0] | {"timestamp": None} == {
        "key": b"k", "value": b"v" * 100, "topic": "t", "partition": 4, "offset": 1, "timestamp": None,
        "timestampType": 0, "headers": None, "sequence": 2**31 - 2, "codec": "gzip",
    }  # fmt: skip


def test_sequence_numbers_begin_anew_at_their_end() -> None:
    log = encode_batch([(n, 7, None, b"v", ()) for n in range(3)], base_sequence=2**31 - 2, producer_id=3)
    wanted = OffsetRange("t", 4, 0, 3)
    (rows,) = record_batches(wanted, RangeReader(wanted).take(memoryview(log), None), ("sequence",), headers=False)
    assert rows["sequence"].to_pylist() == [2**31 - 2, 2**31 - 1, 0]


def test_a_timestamp_that_spark_cannot_hold_is_named_with_its_offset() -> None:
    log = encode_batch([(n, 7 if n < 2 else 2**62, None, b"v", ()) for n in range(3)])
    wanted = OffsetRange("t", 4, 0, 3)
    with pytest.raises(LoadError, match=r"t-4: offset 2 has the timestamp 4611686018427387904 ms, which does not fit"):
        [*record_batches(wanted, RangeReader(wanted).take(memoryview(log), None), (), headers=False)]
