"""Runs SQL over a run: DuckDB in memory, views over the run's files, and no way to write anything.

The tables of the history are read in place. If the run has none (as a simulation), or only outdated ones, the history
is converted into a temporary folder. DuckDB can read the tables that are registered with it, and can open no file.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from squall.checkers.history.conversion import (
    CONVERSION,
    FOLDER,
    ConversionResult,
    convert,
    is_current,
    read_conversion,
)
from squall.checkers.history.parquet import SCHEMAS
from squall.reports.query_views import VIEWS, macros
from squall.reports.run_files import RunFiles, number, objects, read_run

QUOTES = 'the columns "offset", "group" and "end" have names that are words of SQL: write them in double quotes'
READS = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)


class QueryError(ValueError):
    """Says why a statement is refused, or why DuckDB cannot run it."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Holds the rows of a statement. `types` lists the types of the columns by DuckDB's names."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def query(run_dir: Path, sql: str) -> QueryResult:
    """Run one statement that only reads, such as SELECT, over the views of a run. Raises QueryError."""
    with opened(run_dir) as connection:
        try:
            statements = connection.extract_statements(sql)
            if len(statements) != 1 or statements[0].type not in READS:
                raise QueryError(
                    "one statement that only reads is wanted: SELECT, WITH, FROM, DESCRIBE, SUMMARIZE or EXPLAIN"
                )
            done = connection.execute(statements[0])
            columns = done.description or []
            return QueryResult(
                tuple(each[0] for each in columns), tuple(str(each[1]) for each in columns), done.fetchall()
            )
        except duckdb.ParserException as error:
            raise QueryError(f"{error}\n{QUOTES}") from None
        except duckdb.Error as error:
            raise QueryError(str(error)) from None


@contextmanager
def opened(run_dir: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection that has the views of a run, and can reach no file."""
    files = read_run(run_dir)
    with tempfile.TemporaryDirectory(prefix="squall-query-") as spare, duckdb.connect(":memory:") as connection:
        folder, conversion = _converted(run_dir, Path(spare))
        for name, schema in SCHEMAS.items():
            path = folder / f"{name}.parquet"
            # A dataset is not read yet: DuckDB takes only the columns and rows that a query needs.
            connection.register(f"h_{name}", ds.dataset(path) if path.exists() else schema.empty_table())
        for name, table in _small(files, conversion).items():
            connection.register(f"h_{name}", table)
        for statement in (*macros(int(files.origin_ns or 0)), *(view.sql() for view in VIEWS)):
            connection.execute(statement)
        # The lock comes last: no setting can follow it, not even one in the SQL of the user.
        for setting in ("python_enable_replacements=false", "enable_external_access=false", "lock_configuration=true"):
            connection.execute(f"SET {setting}")
        yield connection


def _converted(run_dir: Path, spare: Path) -> tuple[Path, ConversionResult]:
    """Return the folder with the tables of the history: the run's own, or one in `spare` if the run has none that can
    be used.
    """
    if (run_dir / FOLDER / CONVERSION).exists():
        try:
            conversion = read_conversion(run_dir)
            if is_current(run_dir, conversion):
                return run_dir / FOLDER, conversion
        except (ValueError, TypeError):
            pass  # of an earlier version
    for each in run_dir.iterdir():
        if each.is_file():
            (spare / each.name).symlink_to(each.absolute())
    return spare / FOLDER, convert(spare)


def _small(files: RunFiles, conversion: ConversionResult) -> dict[str, pa.Table]:
    """Return, by name, the tables that are made in memory: findings, witnesses, phases and trace events of the run's
    files, and `names`. The table `names` maps the ids that the history's tables use to the texts in `conversion`.
    """
    findings = objects(files.verdict.get("anomalies"))
    witnesses = [(found, each) for found in findings for each in objects(found.get("witnesses"))]
    text, whole, real = pa.string(), pa.int64(), pa.float64()

    def table(rows: list[dict[str, Any]], **columns: pa.DataType) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items())))

    return {
        "names": table([{"id": n, "name": name} for n, name in enumerate(conversion.names)], id=whole, name=text),
        "findings": table(
            findings, name=text, evidence=text, count=whole, permitted=pa.bool_(), why=text, blames=text
        ),
        "witnesses": table(
            [{**each, "name": found.get("name"), "evidence": found.get("evidence"), "fields": json.dumps(each)}
             for found, each in witnesses],
            name=text, evidence=text, partition=text, off=whole, val=whole, op=whole, proc=whole, fields=text,
        ),
        "phases": table(
            [{**each, "origin": files.origin_ns} for each in objects(files.run.get("phases"))],
            name=text, began=whole, ended=whole, origin=real,
        ),
        "events": table(
            [_event(files, node, each) for node, events in files.traces.items() for each in events],
            node=whole, incarnation=whole, event=text, at_s=real, fields=text,
        ),
    }  # fmt: skip


def _event(files: RunFiles, node: int, event: Any) -> dict[str, Any]:
    own = {name: value for name, value in event.items() if name not in ("t", "w", "n", "i", "e")}
    at = files.seconds((number(event["t"]) or 0) * 1e9)
    incarnation = event.get("i")
    return {"node": node, "incarnation": incarnation if isinstance(incarnation, int) else None,
            "event": event["e"], "at_s": at, "fields": json.dumps(own)}  # fmt: skip
