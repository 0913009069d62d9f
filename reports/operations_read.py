"""Reads the operations of one partition between two times from the converted history (`history/records.parquet`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from squall.checkers.history.tables import POLL, SEND
from squall.checkers.history.values import producer_of, sequence_of
from squall.reports.run_files import Json, RunFiles

OUTCOMES = ("ok", "fail", "info")
WORDS = {"ok": "acknowledged", "fail": "failed for certain", "info": "unknown outcome"}
_COLUMNS = ("kind", "st", "proc", "op", "off", "val", "t0", "t1", "final")


@dataclass(frozen=True, slots=True)
class ClientOperation:
    """Describes a send, or a poll with all records that it returned of the partition. Times are seconds on the page's
    time axis.
    """

    op: int
    process: int
    role: str
    t0: float
    t1: float
    outcome: str
    """Says how the operation ended. A send is "ok", "fail", or "info" if its outcome is unknown. A poll is "read" if it
    returned records of the partition, else "empty".
    """
    values: tuple[int, ...]
    text: str


def read_operations(files: RunFiles, part: int, begin: float, end: float) -> list[ClientOperation]:
    """Return the operations that were open at any time between `begin` and `end`, in order of their begin; none without
    a converted history.
    """
    path = files.path / "history" / "records.parquet"
    if files.origin_ns is None or not path.exists():
        return []
    import pyarrow as pa
    import pyarrow.parquet as pq

    low, high = (int(files.origin_ns + at * 1e9) for at in (begin, end))
    try:
        wanted = [("part", "=", part), ("t0", "<=", high), ("t1", ">=", low)]
        # Tables that an earlier version made may lack a column.
        present = set(pq.read_schema(path).names)
        table = pq.read_table(path, columns=[name for name in _COLUMNS if name in present], filters=wanted)
    except (OSError, pa.ArrowException):
        return []
    by_op: dict[int, list[Json]] = {}
    for row in table.to_pylist():
        if "op" in row:
            by_op.setdefault(row["op"], []).append(row)
    found = [_operation(files, op, rows) for op, rows in by_op.items()]
    return sorted(found, key=lambda each: (each.t0, each.op))


def _operation(files: RunFiles, op: int, rows: list[Json]) -> ClientOperation:
    first = rows[0]
    t0, t1 = files.seconds(first["t0"]) or 0.0, files.seconds(first["t1"])
    done = t0 if t1 is None else t1
    if first["kind"] == SEND:
        return _send(op, first, t0, done, t1 is not None)
    got = sorted((row["off"], row["val"]) for row in rows if row["kind"] == POLL)
    what = "final read" if first.get("final") else "poll"
    told = _offsets(got) if got else "nothing"
    text = f"{t0:9.4f} to {done:9.4f} s  process {first['proc']:<3} {what}: {told}"
    role = "final" if first.get("final") else "reader"
    values = tuple(value for _, value in got)
    return ClientOperation(op, first["proc"], role, t0, done, "read" if got else "empty", values, text)


def _send(op: int, row: Json, t0: float, t1: float, ended: bool) -> ClientOperation:
    outcome = OUTCOMES[row["st"]] if row["st"] in (0, 1, 2) else "info"
    at = f" at offset {row['off']}" if row["off"] >= 0 else ""
    who = f"record {sequence_of(row['val'])} of process {producer_of(row['val'])}" if row["val"] >= 0 else "a record"
    word = WORDS[outcome] if ended else "never answered"
    text = f"{t0:9.4f} to {t1:9.4f} s  process {row['proc']:<3} send of {who} (operation {op}): {word}{at}"
    return ClientOperation(op, row["proc"], "producer", t0, t1, outcome, (row["val"],), text)


def _offsets(got: list[tuple[Any, Any]]) -> str:
    first, last = got[0][0], got[-1][0]
    return f"offset {first}" if first == last else f"offsets {first} to {last} ({len(got)} records)"
