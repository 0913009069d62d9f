"""Writes the tables of a history to Parquet files, and reads them. It is the only module of this package that needs
pyarrow.

Large tables stay in log order: in another order, the same rows take more than twice the space.
"""

# pyarrow is imported in the functions that write: it imports numpy, whose threads spin for a while and disturb
# measurements.

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from squall.checkers.history.group_tables import (
    GenerationAssignment,
    GroupCommit,
    MemberPause,
    PartitionOwnership,
    PipelineOutput,
    ReportedCommittedOffset,
)
from squall.checkers.history.reader_tables import InvalidatedPosition, TimeLookup
from squall.checkers.history.tables import (
    OF_GROUPS,
    ClientProcess,
    History,
    InitProducerIdResult,
    IntegerTable,
    ObservedPartition,
    OperationRow,
    PartitionFinalRead,
    PositionChange,
    RecordedFault,
    RecordRow,
    ReportedBounds,
    Txn,
    TxnOperation,
)

ROW_GROUP = 1 << 17
"""Is the number of rows of a row group, small enough that a history of half a million rows is read by several cores."""

_NARROW = {
    pa.int8(): (
        "kind",
        "st",
        "iso",
        "final",
        "whole",
        "inside",
        "how",
        "late_commit",
        "late_abort",
        "begun",
        "stable",
        "late",
    ),
    pa.int32(): ("proc", "part", "idx", "seg", "key", "f", "err", "records", "round", "group", "gen", "parts"),
}
_TYPES = {name: kind for kind, names in _NARROW.items() for name in names}
_CODES = {pa.int8(): "b", pa.int32(): "i", pa.int64(): "q"}
_DICTIONARY = ["kind", "st", "proc", "part", "iso", "final", "seg", "inside", "f", "err", "tries"]
_FAULT_JSON = ("traits", "resolved", "params", "evidence")
_TEXT, _LONG, _INT, _FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


_PROCESSES = _schema(
    proc=_INT, role=_TEXT, client=_TEXT, version=_TEXT, zone=_TEXT, settings=_TEXT, first_t=_LONG, last_t=_LONG
)
_FAULTS = _schema(
    id=_LONG,
    action=_TEXT,
    fault_class=_TEXT,
    traits=_TEXT,
    target=_TEXT,
    resolved=_TEXT,
    params=_TEXT,
    asked=_LONG,
    began=_LONG,
    ended=_LONG,
    evidence=_TEXT,
    error=_TEXT,
    on=_LONG,
)
_PARTITIONS = _schema(
    part=_INT,
    topic=_TEXT,
    index=_LONG,
    cleanup=_TEXT,
    retention_ms=_LONG,
    retention_bytes=_LONG,
    min_isr=_LONG,
    unclean=_LONG,
    described=_FLAG,
    transactional=_FLAG,
    requested_to=_LONG,
    expired_to=_LONG,
    expirable_to=_LONG,
    added=_FLAG,
    deleted=_FLAG,
    deleted_t=_LONG,
    log_start=_LONG,
    seen=_LONG,
    cover_from=_LONG,
    cover_to=_LONG,
    cover_t0=_LONG,
    committed_t0=_LONG,
    last_round=_LONG,
    last_committed_round=_LONG,
    compacted=_FLAG,
    deletable=_FLAG,
    judged_from=_LONG,
    explained_to=_LONG,
)
DERIVED = ("compacted", "deletable", "judged_from", "explained_to")
"""Lists the columns of the partitions table that are computed from its other columns; they exist only for queries."""
_ASSIGNMENTS = _schema(t=_LONG, proc=_INT, kind=_TEXT, part=_INT, position=_LONG)


SCHEMAS: dict[str, pa.Schema] = {
    **{
        name: pa.schema([(column, _TYPES.get(column, pa.int64())) for column in row_type._fields])
        for name, row_type in (
            ("records", RecordRow),
            ("told", ReportedBounds),
            ("ops", OperationRow),
            ("thrown", InvalidatedPosition),
            ("lookups", TimeLookup),
            ("finals", PartitionFinalRead),
            ("txns", Txn),
            ("members", TxnOperation),
            ("inits", InitProducerIdResult),
            ("holds", PartitionOwnership),
            ("grants", GenerationAssignment),
            ("stills", MemberPause),
            ("commits", GroupCommit),
            ("fetches", ReportedCommittedOffset),
            ("outputs", PipelineOutput),
        )
    },
    "partitions": _PARTITIONS,
    "processes": _PROCESSES,
    "faults": _FAULTS,
    "assignments": _ASSIGNMENTS,
}
"""Maps the file name of each table to its columns."""


class TableWriter:
    """Writes one large table piece by piece. The file is complete only after `close`."""

    def __init__(self, folder: Path, name: str) -> None:
        self._schema = SCHEMAS[name]
        dictionary = [column for column in _DICTIONARY if column in self._schema.names]
        path = folder / f"{name}.parquet"
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd", use_dictionary=dictionary)
        self.rows = 0

    def write(self, table: IntegerTable) -> None:
        """Append all rows of `table` to the file."""
        if len(table):
            self._writer.write_table(_arrow(table, self._schema), row_group_size=ROW_GROUP)
            self.rows += len(table)

    def close(self) -> None:
        """Write the footer, which completes the file."""
        self._writer.close()


def write_small(folder: Path, history: History, faults: Sequence[RecordedFault]) -> None:
    """Write the tables that fit in memory whatever the length of the run."""
    finals = IntegerTable(PartitionFinalRead)
    for final in history.finals:
        finals.append(final)
    writer = TableWriter(folder, "finals")
    writer.write(finals)
    writer.close()
    _write(folder, "partitions", [_partition_row(each) for each in history.partitions])
    _write(folder, "processes", [_as_text(asdict(each), "settings") for each in history.processes])
    _write(folder, "faults", [_as_text(asdict(each), *_FAULT_JSON) for each in faults])
    _write(folder, "assignments", [asdict(each) for each in history.assignments])


def read_small(folder: Path, history: History) -> list[RecordedFault]:
    """Fill `history` with the tables that `write_small` wrote and with the ownerships (`holds`), which are few. Return
    the faults.
    """
    history.finals = list(_read(folder / "finals.parquet", PartitionFinalRead).rows())
    history.partitions = [
        ObservedPartition(**{name: value for name, value in row.items() if name not in DERIVED})
        for row in _rows(folder / "partitions.parquet")
    ]
    history.processes = [ClientProcess(**_from_text(row, "settings")) for row in _rows(folder / "processes.parquet")]
    history.assignments = [PositionChange(**row) for row in _rows(folder / "assignments.parquet")]
    if (folder / "holds.parquet").exists():
        history.holds = _read(folder / "holds.parquet", PartitionOwnership)
    faults = (_from_text(row, *_FAULT_JSON) for row in _rows(folder / "faults.parquet"))
    return [
        RecordedFault(**{**row, "traits": tuple(row["traits"]), "resolved": tuple(row["resolved"])}) for row in faults
    ]


def read_large(folder: Path, history: History) -> None:
    """Fill `history` with its large tables, except for the ownerships (`holds`), which `read_small` reads."""
    history.records = _read(folder / "records.parquet", RecordRow)
    history.told = _read(folder / "told.parquet", ReportedBounds)
    history.ops = _read(folder / "ops.parquet", OperationRow)
    history.thrown = _read(folder / "thrown.parquet", InvalidatedPosition)
    history.lookups = _read(folder / "lookups.parquet", TimeLookup)
    history.txns = _read(folder / "txns.parquet", Txn)
    history.members = _read(folder / "members.parquet", TxnOperation)
    history.inits = _read(folder / "inits.parquet", InitProducerIdResult)
    for name in OF_GROUPS:
        path = folder / f"{name}.parquet"
        if name != "holds" and path.exists():
            setattr(history, name, _read(path, getattr(history, name).row_type))


def _arrow(table: IntegerTable, schema: pa.Schema) -> pa.Table:
    # pa.array() would import pandas, which takes as long as converting a small history, so buffers are used.
    arrays = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        column = array(_CODES[kind], table.column(name))
        arrays.append(pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)]))
    return pa.Table.from_arrays(arrays, schema=schema)


def _read(path: Path, row_type: Any) -> IntegerTable:
    table = IntegerTable(row_type)
    stored = pq.read_table(path)
    table.data = array("q", bytes(8 * stored.num_rows * table.width))
    for index, name in enumerate(row_type._fields):
        column = array("q")
        for chunk in stored[name].cast(pa.int64()).chunks:
            # The buffer itself: `to_pylist` would make an object of each number.
            column.frombytes(chunk.buffers()[1][chunk.offset * 8 : (chunk.offset + len(chunk)) * 8])
        table.data[index :: table.width] = column
    return table


def _write(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMAS[name])
    pq.write_table(table, folder / f"{name}.parquet", compression="zstd")


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def _partition_row(partition: ObservedPartition) -> dict[str, Any]:
    return {**asdict(partition), **{name: getattr(partition, name) for name in DERIVED}}


def _as_text(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {**row, **{name: json.dumps(row[name], sort_keys=True) for name in names}}


def _from_text(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {**row, **{name: json.loads(row[name]) for name in names}}
