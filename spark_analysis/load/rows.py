"""Makes Arrow record batches of the batches that a range reader returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from squall.broker.protocol.records import SEQUENCE_MASK
from squall.spark_analysis.load.columns import DecompressedBatch, columns_of
from squall.workloads.load.reading import LoadError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from squall.broker.protocol.records import BatchHeader
    from squall.spark_analysis.load.columns import RecordColumns
    from squall.workloads.load.ranges import OffsetRange
    from squall.workloads.load.reading import ReadBatch

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
HEADERS: Final = "headers array<struct<key: string, value: binary>>"
EXTRA: Final = {
    "producerId": ("bigint", pa.int64()),
    "producerEpoch": ("int", pa.int32()),
    "sequence": ("int", pa.int32()),
    "transactional": ("boolean", pa.bool_()),
    "leaderEpoch": ("int", pa.int32()),
    "codec": ("string", pa.string()),
}
"""Maps each extra column to its types in Spark and in Arrow."""
MOST_BYTES: Final = 4 << 20
"""Limits the decompressed bytes of the batches of one Arrow record batch, if there are several."""
MOST_SECONDS: Final = 9_223_372_036_853
"""Is the latest time, in seconds since 1970, that a number of microseconds in 64 bits can hold, less a second."""
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def spark_schema(columns: Sequence[str], *, headers: bool) -> str:
    """Return the schema as Spark writes it: the columns of its Kafka source by the same names and types, then
    `columns`.
    """
    fields = ["key binary", "value binary", "topic string", "partition int", "offset bigint"]
    fields += ["timestamp timestamp", "timestampType int"]
    return ", ".join([*fields, *([HEADERS] if headers else []), *(f"{name} {EXTRA[name][0]}" for name in columns)])


def record_batches(
    wanted: OffsetRange, found: Sequence[ReadBatch], columns: Sequence[str], *, headers: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the records of `found` as rows of `spark_schema`. What is decompressed at once is about `MOST_BYTES`, or
    one batch. Raises CorruptBatch if a batch cannot be decoded.
    """
    some: list[DecompressedBatch] = []
    size = 0
    for each in found:
        body = each.body
        if some and size + len(body) > MOST_BYTES:
            yield _rows(wanted, some, columns, headers=headers)
            some, size = [], 0
        some.append(DecompressedBatch(each, body))
        size += len(body)
    if some:
        yield _rows(wanted, some, columns, headers=headers)


def _rows(
    wanted: OffsetRange, found: Sequence[DecompressedBatch], columns: Sequence[str], *, headers: bool
) -> pa.RecordBatch:
    read = columns_of(found)
    rows = len(read.offsets)
    batches = [each.batch.header for each in found]

    def of_batches(each_batch: Sequence[Any], kind: pa.DataType) -> pa.Array:
        """Return a column whose rows have a value of their batch."""
        return pa.array(each_batch, kind).take(pa.array(np.repeat(np.arange(len(found)), read.counts)))

    arrays = [
        read.keys,
        read.values,
        pa.repeat(pa.scalar(wanted.topic), rows),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), rows),
        pa.array(read.offsets),
        _timestamps(wanted, read),
        of_batches([each.timestamp_type for each in batches], pa.int32()),
    ]
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    if headers:
        # As Spark's Kafka source: null for a record without headers.
        pairs = [[{"key": name, "value": it} for name, it in each] if each else None for each in read.headers]
        arrays.append(pa.array(pairs, _HEADERS))
        names.append("headers")
    for name in columns:
        if name == "sequence":
            arrays.append(pa.array(_sequences(batches, read), pa.int32()))
        else:
            arrays.append(of_batches([_of_header(each, name) for each in batches], EXTRA[name][1]))
        names.append(name)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _timestamps(wanted: OffsetRange, read: RecordColumns) -> pa.Array:
    """Return the timestamps, in microseconds, as Spark has them. Raises LoadError for one that does not fit."""
    beyond = np.flatnonzero(np.abs(read.timestamps // 1000) > MOST_SECONDS)
    if len(beyond):
        offset, time = read.offsets[beyond[0]], read.timestamps[beyond[0]]
        raise LoadError(
            f"{wanted.topic}-{wanted.partition}: offset {offset} has the timestamp {time} ms, which does not fit "
            "Spark's timestamps (up to the year 294247): it cannot be loaded; startingOffsets can pass it"
        )
    return pa.array(read.timestamps, pa.timestamp("ms", tz="UTC")).cast(_TIMESTAMP)


def _of_header(header: Any, column: str) -> Any:
    if column == "transactional":
        return header.is_transactional
    if column == "codec":
        return CODECS[header.codec]
    return {
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "leaderEpoch": header.leader_epoch,
    }[column]


def _sequences(batches: Sequence[BatchHeader], read: RecordColumns) -> NDArray[np.int64]:
    """Return each record's sequence number, -1 without a producer id."""
    first, base = (
        np.repeat(np.array([getattr(each, name) for each in batches], np.int64), read.counts)
        for name in ("base_sequence", "base_offset")
    )
    return np.where(first < 0, -1, first + read.offsets - base & SEQUENCE_MASK)
