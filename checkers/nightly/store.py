"""The store of nights: Parquet files that are only ever added, one folder for each time that a night was collected.

`STORE/night=ID/STAMP-DIGEST/` holds a file for each of `TABLES` and collection.json. It is made under another name and
renamed when it is whole, so that a session that is killed leaves nothing that anybody reads, and two at the same time
do not meet. Of a night the newest folder counts. DIGEST is of what was collected: the same again adds nothing.

`STORE/tests=ID/` is the same for the nights of `squall test --night`, with the tables `TEST_TABLES`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from squall.checkers.history import seal
from squall.checkers.nightly.matrix import FILE as MATRIX
from squall.checkers.nightly.night import END, FILE, RESULTS, Night

SCHEMA = 1
FOLDER = "store"
COLLECTION = "collection.json"
_FRESH = ".collecting-"
ABANDONED = timedelta(days=1)
"""A folder that nobody finished for so long belongs to a session that was killed."""

_UNREADABLE = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)
"""The exceptions that reading a damaged collection raises."""

_TEXT, _LONG, _REAL, _FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_TEXTS, _WORDS = pa.list_(pa.string()), pa.map_(pa.string(), pa.string())


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


_RUN = {"night": _TEXT, "item": _TEXT, "attempt": _LONG}
MEASURED: Mapping[str, pa.DataType] = {
    **dict.fromkeys(
        ("acknowledged", "lost", "lost_unacknowledged", "duplicated", "lost_tails", "lost_tail_records"), _LONG
    ),
    "lost_tail_ms": _REAL,
    "leader_changes": _LONG,
    **dict.fromkeys(("unavailable_ms", "unavailable_all_ms", "recovery_ms"), _REAL),
    "unrecovered": _LONG,
    **dict.fromkeys(("p50_ms", "p99_ms", "p50_faulty_ms", "p99_faulty_ms"), _REAL),
}
"""Columns of runs that are computed from the history. Null where nobody knows."""
TABLES: Mapping[str, pa.Schema] = {
    "nights": _schema(
        night=_TEXT, began=_TEXT, ended=_TEXT, commit=_TEXT, budget_s=_REAL, planned=_LONG, left_out=_TEXTS,
        not_run=_TEXTS, exit=_LONG, interrupted=_FLAG, problems=_TEXTS,
    ),
    "runs": _schema(
        **_RUN, counts=_FLAG, run=_TEXT, verdict=_TEXT, began=_TEXT, seconds=_REAL, why=_TEXT, seed=_LONG,
        configuration=_TEXT, target=_TEXT, runtime=_TEXT, workload=_TEXT, axes=_WORDS, classes=_TEXT, faults=_TEXTS,
        planned=_LONG, landed=_LONG, promise=_TEXT, permitted=_TEXTS, unexpected=_TEXTS, measured=_FLAG, **MEASURED,
    ),
    "findings": _schema(
        **_RUN, run=_TEXT, configuration=_TEXT, target=_TEXT, runtime=_TEXT, workload=_TEXT, classes=_TEXT,
        anomaly=_TEXT, evidence=_TEXT, permitted=_FLAG, unexpected=_FLAG, promise=_TEXT, why=_TEXT, count=_LONG,
        witnesses=_LONG, fingerprint=_TEXT, cause=_TEXT, place=_TEXT, first_s=_REAL, last_s=_REAL, story=_TEXTS,
    ),
    "faults": _schema(
        **_RUN, id=_LONG, action=_TEXT, fault_class=_TEXT, landed=_FLAG, began_s=_REAL, ended_s=_REAL,
        recovery_ms=_REAL, gap_ms=_REAL,
    ),
    "latencies": _schema(**_RUN, faulty=_FLAG, bucket=_LONG, n=_LONG),
}  # fmt: skip
"""The columns of each table, by its file's name. docs/durability.md says what they mean."""
TEST_TABLES: Mapping[str, pa.Schema] = {
    "test_nights": _schema(
        night=_TEXT, began=_TEXT, ended=_TEXT, commit=_TEXT, machine=_TEXT, python=_TEXT, exit=_LONG, problems=_TEXTS,
    ),
    "parts": _schema(
        night=_TEXT, part=_TEXT, result=_TEXT, exit=_LONG, seconds=_REAL, commit=_TEXT, command=_TEXT, why=_TEXT,
        next_seed=_LONG,
    ),
    "tests": _schema(
        night=_TEXT, test=_TEXT, result=_TEXT, cpu_s=_REAL, wall_s=_REAL, flaky=_FLAG, why=_TEXT, commit=_TEXT,
    ),
}  # fmt: skip
"""The columns of the tables of `squall test --night`. docs/testing.md says what they mean."""


@dataclass(frozen=True, slots=True)
class NightStoreKind:
    """Nights of one kind: their folders begin with `prefix`, and each has these tables."""

    prefix: str
    tables: Mapping[str, pa.Schema]
    collects: str
    """The command that collects a night of this kind once more, from its folder."""


RUNS = NightStoreKind("night=", TABLES, "squall report --nightly")
TESTS = NightStoreKind("tests=", TEST_TABLES, "./squall test --night --resume")
_SCHEMAS = {**TABLES, **TEST_TABLES}


@dataclass(frozen=True, slots=True)
class CollectedNight:
    """Names the parts that were collected of one night, once."""

    night: str
    began: str
    path: Path
    digest: str

    def file(self, table: str) -> Path:
        """Return the path of a table."""
        return self.path / f"{table}.parquet"


def digest_of(night: Night) -> str:
    """Of all that a collection depends on, so that what was collected already is known again."""
    seen = hashlib.sha256(f"schema {SCHEMA}".encode())
    files = [night.path / FILE, night.path / RESULTS, night.path / END, night.path / MATRIX]
    for attempt in night.attempts:
        if attempt.run:
            seen.update(str(seal.stamp(night.path / attempt.run / seal.FILE)).encode())
            files += [night.path / attempt.run / name for name in ("verdict.json", "nemesis.jsonl", "plan.toml")]
    for file in files:
        try:
            content = file.read_bytes()
        except OSError:
            content = b"-"
        seen.update(f"{file.relative_to(night.path)} {len(content)} ".encode())
        seen.update(content)
    return seen.hexdigest()[:16]


def fresh(store: Path, tag: str, now: datetime) -> Path:
    """An empty folder to write a collection into. Removes what sessions have left that were killed long ago."""
    store.mkdir(parents=True, exist_ok=True)
    for each in store.glob(f"{_FRESH}*"):
        try:
            left = datetime.fromtimestamp(each.stat().st_mtime, now.tzinfo)
        except OSError:
            continue  # another session removed it, or has finished it
        if now - left > ABANDONED:
            shutil.rmtree(each, ignore_errors=True)
    folder = store / f"{_FRESH}{tag}"
    folder.mkdir()
    return folder


def write(folder: Path, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one table of a collection. Columns that a row does not name are null."""
    content = pa.Table.from_pylist(list(rows), schema=_SCHEMAS[table])
    # Each page says what its bytes must be: without that, some damage reads as other values.
    pq.write_table(content, folder / f"{table}.parquet", compression="zstd", write_page_checksum=True)


def commit(
    folder: Path, night: str, began: str, digest: str, now: datetime, series: NightStoreKind = RUNS
) -> CollectedNight:
    """Add a collection to the store that `folder` was made in. Every table of the series must be there."""
    missing = [name for name in series.tables if not (folder / f"{name}.parquet").exists()]
    assert not missing, missing
    stamp = now.strftime("%Y%m%dT%H%M%S.%fZ")
    told = {"schema": SCHEMA, "night": night, "began": began, "collected": now.isoformat(), "digest": digest}
    (folder / COLLECTION).write_text(json.dumps(told, indent=1) + "\n")
    place = folder.parent / f"{series.prefix}{night}"
    place.mkdir(exist_ok=True)
    path = place / f"{stamp}-{digest}"
    folder.rename(path)
    return CollectedNight(night, began, path, digest)


def collections(store: Path, series: NightStoreKind = RUNS) -> tuple[list[CollectedNight], list[str]]:
    """The newest collection of each night, by when the night began; and why some cannot be read, a sentence each."""
    found, problems = [], []
    for place in sorted(store.glob(f"{series.prefix}*")):
        if not place.is_dir():
            problems.append(f"{place} is no folder, and is left out: remove it.")
            continue
        for path in sorted(place.iterdir(), reverse=True):
            try:
                told = json.loads((path / COLLECTION).read_text())
                if told["schema"] != SCHEMA:
                    problems.append(_of_another_schema(str(told["night"]), told["schema"], series))
                    break
                one = CollectedNight(str(told["night"]), str(told["began"]), path, str(told["digest"]))
                for table in series.tables:
                    _read(one, table).validate(full=True)
                found.append(one)
                break
            except _UNREADABLE as error:
                problems.append(_damaged(path, error, series))
    return sorted(found, key=lambda each: (each.began, each.night)), problems


def _damaged(path: Path, error: Exception, series: NightStoreKind) -> str:
    """The sentence about a collection that is left out."""
    why = " ".join(str(error).split()) or type(error).__name__
    return (
        f"{path} cannot be read, and is left out ({why[:200]}). Remove it: `{series.collects}` of the night's folder, "
        "if that is still there, collects it again."
    )


def _of_another_schema(night: str, schema: Any, series: NightStoreKind) -> str:
    return (
        f"The store has night {night} in schema {schema!r}, and this version reads {SCHEMA}: it is left out. "
        f"`{series.collects}` of its folder collects it again."
    )


def rows(collected: Iterable[CollectedNight], table: str) -> list[dict[str, Any]]:
    """The rows of a table, of these collections. A map becomes a dict."""
    return [row for each in collected for row in _read(each, table).to_pylist(maps_as_pydicts="strict")]


def _read(collected: CollectedNight, table: str) -> pa.Table:
    """A table of a collection. One of `_UNREADABLE` if it is damaged."""
    file, schema = collected.file(table), _SCHEMAS[table]
    # A column that is not in the file is null, so a damaged name would take a column away.
    if odd := set(pq.read_schema(file).names) - set(schema.names):
        raise ValueError(f"{file.name} has columns that are not this table's: {', '.join(sorted(odd))}")
    return pq.read_table(file, schema=schema, partitioning=None, page_checksum_verification=True)
