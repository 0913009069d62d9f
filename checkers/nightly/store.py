"""Keeps the results of nights in a store of Parquet files that only grows: each collection of a night adds a folder.

`STORE/night=ID/STAMP-DIGEST/` holds a file for each of `TABLES` and collection.json. A folder is made under another
name and renamed when it is complete, so that a killed session leaves nothing that is read, and two sessions at the same
time do not conflict. The newest folder of a night counts. DIGEST identifies what was collected: the same content again
adds nothing.

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
from squall.checkers.nightly.night import END, FILE, RESULTS, Night

SCHEMA = 1
FOLDER = "store"
COLLECTION = "collection.json"
_FRESH = ".collecting-"
ABANDONED = timedelta(days=1)
"""Is the age at which an unfinished folder counts as left by a killed session."""

_UNREADABLE = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)
"""Lists the exceptions that reading a damaged collection raises."""

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
"""Maps the columns of runs that are computed from the history to their types. A null is a value that is not known."""
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
"""Maps each table's file name to its columns, which docs/durability.md explains."""
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
"""Maps the file name of each table of `squall test --night` to its columns, which docs/testing.md explains."""


@dataclass(frozen=True, slots=True)
class NightStoreKind:
    """Describes one kind of nights in the store: the prefix of their folders, and their tables. There are two kinds:
    nights of runs (`RUNS`), and nights of `squall test --night` (`TESTS`).
    """

    prefix: str
    tables: Mapping[str, pa.Schema]
    collects: str
    """Is the command that collects a night of this kind again, from its folder."""


RUNS = NightStoreKind("night=", TABLES, "squall report --nightly")
TESTS = NightStoreKind("tests=", TEST_TABLES, "./squall test --night --resume")
_SCHEMAS = {**TABLES, **TEST_TABLES}


@dataclass(frozen=True, slots=True)
class CollectedNight:
    """Names the files of one collection of one night."""

    night: str
    began: str
    path: Path
    digest: str

    def file(self, table: str) -> Path:
        """Return the path of a table's file."""
        return self.path / f"{table}.parquet"


def digest_of(night: Night) -> str:
    """Return a digest of the files from which a night's rows in the store are computed. A night whose digest is already
    in the store is not added again.
    """
    seen = hashlib.sha256(f"schema {SCHEMA}".encode())
    files = [night.path / FILE, night.path / RESULTS, night.path / END]
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
    """Return a new empty folder into which a collection can be written. Its name ends in `tag`, which no other
    collection may have at the same time. Folders that killed sessions left more than ABANDONED ago are removed.
    """
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
    """Write one table of a collection. Columns that a row does not have are null."""
    content = pa.Table.from_pylist(list(rows), schema=_SCHEMAS[table])
    # Each page has a checksum: without it, some damage would be read as other values.
    pq.write_table(content, folder / f"{table}.parquet", compression="zstd", write_page_checksum=True)


def commit(
    folder: Path, night: str, began: str, digest: str, now: datetime, series: NightStoreKind = RUNS
) -> CollectedNight:
    """Add the collected results of a night to the store, by renaming `folder`, which `fresh` made. The folder must have
    each table of the night's kind, `series`. `began` is when the night began, and `now` is when it was collected.
    `digest` identifies what was collected.
    """
    missing = [name for name in series.tables if not (folder / f"{name}.parquet").exists()]
    assert not missing, missing
    stamp = now.strftime("%Y%m%dT%H%M%S.%fZ")
    reported = {"schema": SCHEMA, "night": night, "began": began, "collected": now.isoformat(), "digest": digest}
    (folder / COLLECTION).write_text(json.dumps(reported, indent=1) + "\n")
    place = folder.parent / f"{series.prefix}{night}"
    place.mkdir(exist_ok=True)
    path = place / f"{stamp}-{digest}"
    folder.rename(path)
    return CollectedNight(night, began, path, digest)


def collections(store: Path, series: NightStoreKind = RUNS) -> tuple[list[CollectedNight], list[str]]:
    """Return the newest collection of each night, by when the night began; and a sentence for each that cannot be read.
    """
    found, problems = [], []
    for place in sorted(store.glob(f"{series.prefix}*")):
        if not place.is_dir():
            problems.append(f"{place} is no folder, and is left out: remove it.")
            continue
        for path in sorted(place.iterdir(), reverse=True):
            try:
                reported = json.loads((path / COLLECTION).read_text())
                if reported["schema"] != SCHEMA:
                    problems.append(_of_another_schema(str(reported["night"]), reported["schema"], series))
                    break
                one = CollectedNight(str(reported["night"]), str(reported["began"]), path, str(reported["digest"]))
                for table in series.tables:
                    _read(one, table).validate(full=True)
                found.append(one)
                break
            except _UNREADABLE as error:
                problems.append(_damaged(path, error, series))
    return sorted(found, key=lambda each: (each.began, each.night)), problems


def _damaged(path: Path, error: Exception, series: NightStoreKind) -> str:
    """Return the sentence that says that the folder `path` of the store cannot be read because of `error`, and is left
    out. It also gives the command that writes the folder again, which depends on `series`.
    """
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
    """Return the rows of a table, a dict each, from all of these collections. A value of a map column becomes a dict,
    too.
    """
    return [row for each in collected for row in _read(each, table).to_pylist(maps_as_pydicts="strict")]


def _read(collected: CollectedNight, table: str) -> pa.Table:
    """Return a table of a collection. Raises one of `_UNREADABLE` if it is damaged."""
    file, schema = collected.file(table), _SCHEMAS[table]
    # A column that is not in the file is null, so a damaged name would take a column away.
    if odd := set(pq.read_schema(file).names) - set(schema.names):
        raise ValueError(f"{file.name} has columns that are not this table's: {', '.join(sorted(odd))}")
    return pq.read_table(file, schema=schema, partitioning=None, page_checksum_verification=True)
