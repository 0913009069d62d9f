"""Implements `squall query`, which runs SQL over the files of a run."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from squall.chaos.commands import completions
from squall.chaos.commands.json_output import json_flag, set_json_result
from squall.chaos.errors import PreconditionError
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.screen import console
from squall.chaos.toolchain.extras import missing

if TYPE_CHECKING:
    from squall.chaos.commands.outputs import CommandOutput
    from squall.reports.query import QueryResult


@click.command()
@click.argument("run", type=click.Path(path_type=Path), shell_complete=completions.runs)
@click.argument("sql", default="")
@click.option("--csv", "as_csv", is_flag=True, help="Print the rows as CSV, with a line of names.")
@json_flag
def command(run: Path, sql: str, as_csv: bool) -> int:
    """Run one SELECT of DuckDB's SQL over a run: operations, records, polls, faults, findings and others.

    RUN is a run directory. Without SQL: the views and their columns (docs/query.md). Only reads; the run's files stay
    as they are.

    \b
    Examples:
      squall query runs/latest
      squall query runs/latest "select name, count, permitted from findings"
      squall query runs/latest "select outcome, count(*) from records where kind = 'send' group by all" --csv
    """
    path = RunDirectory.open(run).path
    if lacks := missing("query"):
        raise PreconditionError("; ".join(lacks))
    from squall.reports.query import QueryError, QueryResult, query
    from squall.reports.query_views import VIEWS

    if sql:
        try:
            result = query(path, sql)
        except QueryError as wrong:
            raise PreconditionError(str(wrong)) from None
    else:
        columns = [(view.name, name, about) for view in VIEWS for name, _, about in view.columns]
        result = QueryResult(("view", "column", "about"), ("VARCHAR",) * 3, [*columns])
    if set_json_result(lambda: _output(result)):
        return 0
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(result.columns)
        writer.writerows(result.rows)
    else:
        _show(result)
    return 0


def _output(result: QueryResult) -> CommandOutput:
    from squall.chaos.commands.outputs import QueryColumn, QueryOutput

    return QueryOutput(
        columns=tuple(
            QueryColumn(name=name, type=kind) for name, kind in zip(result.columns, result.types, strict=True)
        ),
        rows=tuple(tuple(map(_plain, row)) for row in result.rows),
    )


def _plain(value: object) -> object:
    """Return a value as JSON can hold it: a type that JSON lacks becomes text."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _show(result: QueryResult) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in result.columns:
        table.add_column(Text(name))
    for row in result.rows:
        table.add_row(*(Text("" if each is None else str(each)) for each in row))
    console().print(table)
