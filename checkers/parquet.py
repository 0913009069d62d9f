"""The tables of a history as Parquet files, and back. The one module of this room that knows pyarrow.

Large tables stay in log order: sorted otherwise, the same rows take more than twice the space.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checkers.tables import Assignment, Fault, FinalRead, History, Op, Partition, Process, Record, Table, Told

ROW_GROUP = 1 << 17
"""Rows. Small enough that a history of half a million rows is read by more than one core."""

_TYPES = {"b": pa.int8(), "i": pa.int32(), "q": pa.int64()}
_DICTIONARY = ["kind", "st", "proc", "part", "iso", "final", "seg", "f", "err"]
_FAULT_JSON = ("resolved", "params", "evidence")
_TEXT, _LONG, _INT, _FLAG = pa.string(), pa.int64(), pa.int32(), pa.bool_()


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


_PROCESSES = _schema(proc=_INT, role=_TEXT, client=_TEXT, version=_TEXT, zone=_TEXT, settings=_TEXT)
_FAULTS = _schema(
    id=_LONG,
    action=_TEXT,
    target=_TEXT,
    resolved=_TEXT,
    params=_TEXT,
    asked=_LONG,
    began=_LONG,
    ended=_LONG,
    evidence=_TEXT,
    error=_TEXT,
)
_PARTITIONS = _schema(
    part=_INT,
    topic=_TEXT,
    index=_INT,
    cleanup=_TEXT,
    retention_ms=_LONG,
    deletable=_FLAG,
    log_start=_LONG,
    cover_from=_LONG,
    cover_to=_LONG,
    cover_t0=_LONG,
    compacted=_FLAG,
    judged_from=_LONG,
)
_ASSIGNMENTS = _schema(t=_LONG, proc=_INT, kind=_TEXT, part=_INT, position=_LONG)
_COMMITS = _schema(op=_LONG, proc=_INT, group=_TEXT, part=_INT, off=_LONG, st=pa.int8(), t0=_LONG, t1=_LONG)


class TableWriter:
    """Writes one large table piece by piece. The file is whole only after `close`."""

    def __init__(self, path: Path, table: Table) -> None:
        self._schema = pa.schema([(name, _TYPES[column.typecode]) for name, column in table.columns.items()])
        dictionary = [name for name in _DICTIONARY if name in table.columns]
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd", use_dictionary=dictionary)
        self.rows = 0

    def write(self, table: Table) -> None:
        """Append all rows of `table`."""
        if len(table):
            self._writer.write_table(_arrow(table, self._schema), row_group_size=ROW_GROUP)
            self.rows += len(table)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


def write_small(folder: Path, history: History, faults: Sequence[Fault]) -> None:
    """The tables that fit in memory whatever the length of the run."""
    finals = Table(FinalRead)
    for final in history.finals:
        finals.append(final)
    writer = TableWriter(folder / "finals.parquet", finals)
    writer.write(finals)
    writer.close()
    _write(folder / "partitions.parquet", [_partition_row(each) for each in history.partitions], _PARTITIONS)
    processes = [_as_text(asdict(each), "settings") for each in history.processes]
    _write(folder / "processes.parquet", processes, _PROCESSES)
    _write(folder / "faults.parquet", [_as_text(asdict(each), *_FAULT_JSON) for each in faults], _FAULTS)
    _write(folder / "assignments.parquet", [asdict(each) for each in history.assignments], _ASSIGNMENTS)
    _write(folder / "commits.parquet", [], _COMMITS)


def read_tables(folder: Path, history: History) -> list[Fault]:
    """Fill `history` from the files in `folder`. Returns the faults."""
    history.records = _read(folder / "records.parquet", Record)
    history.told = _read(folder / "told.parquet", Told)
    history.ops = _read(folder / "ops.parquet", Op)
    history.finals = list(_read(folder / "finals.parquet", FinalRead).rows())
    history.partitions = [
        Partition(**{name: value for name, value in row.items() if name not in ("compacted", "judged_from")})
        for row in _rows(folder / "partitions.parquet")
    ]
    history.processes = [Process(**_from_text(row, "settings")) for row in _rows(folder / "processes.parquet")]
    history.assignments = [Assignment(**row) for row in _rows(folder / "assignments.parquet")]
    faults = (_from_text(row, *_FAULT_JSON) for row in _rows(folder / "faults.parquet"))
    return [Fault(**{**row, "resolved": tuple(row["resolved"])}) for row in faults]


def _arrow(table: Table, schema: pa.Schema) -> pa.Table:
    # A copy: an array cannot be emptied while Arrow looks into its buffer.
    columns = [pa.array(np.array(column, dtype=column.typecode)) for column in table.columns.values()]
    return pa.Table.from_arrays(columns, schema=schema)


def _read(path: Path, row_type: Any) -> Table:
    table = Table(row_type)
    stored = pq.read_table(path)
    for name, column in table.columns.items():
        values = stored[name].to_numpy()
        table.columns[name] = array(column.typecode, values.astype(np.dtype(column.typecode)).tobytes())
    return table


def _write(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def _partition_row(partition: Partition) -> dict[str, Any]:
    return {**asdict(partition), "compacted": partition.compacted, "judged_from": partition.judged_from}


def _as_text(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {**row, **{name: json.dumps(row[name], sort_keys=True) for name in names}}


def _from_text(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {**row, **{name: json.loads(row[name]) for name in names}}
