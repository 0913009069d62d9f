"""Makes Arrow record batches of the batches that a range reader returns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
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
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def spark_schema(columns: Sequence[str], *, headers: bool) -> str:
    """Return the schema as Spark writes it: the columns of its Kafka source by the same names and types, then
    `columns`.
    """
    fields = ["key binary", "value binary", "topic string", "partition int", "offset bigint"]
    fields += ["timestamp timestamp", "timestampType int"]
    return ", ".join([*fields, *([HEADERS] if headers else []), *(f"{name} {EXTRA[name][0]}" for name in columns)])


def record_batch(
    wanted: OffsetRange, found: Sequence[ReadBatch], columns: Sequence[str], *, headers: bool
) -> pa.RecordBatch:
    """Return the records of `found`, at least one, as rows of `spark_schema`."""
    records = chain.from_iterable(each.records for each in found)
    offsets, times, keys, values, record_headers = zip(*records, strict=True)
    sizes = [len(each.records) for each in found]
    rows = len(offsets)

    def of_batches(each_batch: Sequence[Any], kind: pa.DataType) -> pa.Array:
        """Return a column whose rows have a value of their batch."""
        return pa.array(chain.from_iterable(map(repeat, each_batch, sizes)), kind, size=rows)

    arrays = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.repeat(pa.scalar(wanted.topic), rows),
        pa.repeat(pa.scalar(wanted.partition, pa.int32()), rows),
        pa.array(offsets, pa.int64()),
        pa.array(times, pa.timestamp("ms", tz="UTC")).cast(_TIMESTAMP),
        of_batches([each.header.timestamp_type for each in found], pa.int32()),
    ]
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    if headers:
        # As Spark's Kafka source: null for a record without headers.
        pairs = [[{"key": name, "value": content} for name, content in each] or None for each in record_headers]
        arrays.append(pa.array(pairs, _HEADERS))
        names.append("headers")
    for name in columns:
        if name == "sequence":
            arrays.append(pa.array(_sequences(found), pa.int32()))
        else:
            arrays.append(of_batches([_of_header(each.header, name) for each in found], EXTRA[name][1]))
        names.append(name)
    return pa.RecordBatch.from_arrays(arrays, names=names)


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


def _sequences(found: Sequence[ReadBatch]) -> list[int]:
    """Return each record's sequence number, -1 without a producer id."""
    return [
        -1 if header.base_sequence < 0 else header.base_sequence + record.offset - header.base_offset & 0x7FFFFFFF
        for header, records in found
        for record in records
    ]
