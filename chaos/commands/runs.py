"""Implements `squall runs`, which lists the runs in a folder, compares up to six of them, and removes old ones."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from squall.chaos.commands import completions
from squall.chaos.commands.json_output import json_flag, set_json_result
from squall.chaos.errors import PreconditionError
from squall.chaos.runs.directory import RUNS, RunDirectory
from squall.chaos.screen import console
from squall.chaos.typed import typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from squall.chaos.commands.outputs import CommandOutput
    from squall.reports.run_list import RunListEntry

TABLE_COLUMNS = 170
"""Gives the columns that the table of runs needs. On a narrower terminal each run takes a few lines instead."""
MOST = 6
"""Limits the number of runs that are compared at once."""
NAMED = 5
"""Limits how many folders are named in the message "no runs, because they have no plan.toml: ..."."""
GOING = ".removing-"
"""Is the beginning of the name that a run's folder gets while the run is being removed."""
UNKNOWN = 2
STYLES = {"valid": "green", "invalid": "bold red"}


@click.command()
@click.argument(
    "compare", nargs=-1, metavar="[RUN RUN...]", type=click.Path(path_type=Path), shell_complete=completions.runs
)
@click.option("--runs", type=click.Path(path_type=Path), default=RUNS, show_default=True, help="Folder for runs.")
@click.option(
    "--verdict", type=click.Choice(["valid", "invalid", "unknown", "no verdict"]), help="Only runs with this verdict."
)
@click.option("--prune", is_flag=True, help="Remove valid runs by --older-than and --keep-mib, and no others.")
@click.option(
    "--older-than", type=click.FloatRange(0), metavar="DAYS", help="With --prune: remove valid runs older than this."
)
@click.option("--keep-mib", type=click.IntRange(0), help="With --prune: remove the oldest valid runs until all fit.")
@click.option("--dry-run", is_flag=True, help="With --prune: only print which runs it would remove.")
@json_flag
def command(
    compare: tuple[Path, ...],
    runs: Path,
    verdict: str | None,
    prune: bool,
    older_than: float | None,
    keep_mib: int | None,
    dry_run: bool,
) -> int:
    """List the runs in a folder, the newest first: verdict, configuration, faults, latency and findings of each. The
    page FOLDER/index.html has the same. With two to six runs, compare them side by side: findings, differences of the
    plans, and curves; the page is compared.html beside the first run.

    \b
    Examples:
      squall runs
      squall runs --verdict invalid
      squall runs runs/20260704T120000-seed7 runs/latest
      squall runs --prune --older-than 14 --keep-mib 2000 --dry-run
    """
    from squall.reports.run_list import folders_without_plan, runs_in, to_remove
    from squall.reports.runs_page import render

    if compare:
        return _compare(compare, runs)
    if (older_than is not None or keep_mib is not None or dry_run) and not prune:
        raise click.UsageError("--older-than, --keep-mib and --dry-run say what --prune removes: add --prune")
    if prune and older_than is None and keep_mib is None:
        raise click.UsageError("--prune needs --older-than DAYS or --keep-mib MIB")
    if not runs.is_dir():
        raise PreconditionError(
            f"{runs}: there is no such folder of runs; `squall run` makes it, --runs names another one"
        )
    rows = runs_in(runs)
    going: Sequence[RunListEntry] = ()
    gone: Sequence[RunListEntry] = ()
    if prune:
        limit = None if keep_mib is None else keep_mib << 20
        going = to_remove(rows, datetime.now(UTC), older_than, limit)
        gone = _remove(runs, going, dry_run=dry_run)
        rows = runs_in(runs)
    shown = [row for row in rows if verdict in (None, row.verdict)]
    set_json_result(lambda: _output(shown, gone, folders_without_plan(runs)))
    _show(shown)
    if others := folders_without_plan(runs):
        names = ", ".join(each.name for each in others[:NAMED]) + (", ..." if len(others) > NAMED else "")
        click.echo(f"no runs, because they have no plan.toml: {names}")
    click.echo(f"page: {render(runs, rows)}")
    return 0 if len(gone) == len(going) else UNKNOWN


def _output(
    rows: Sequence[RunListEntry], removed: Sequence[RunListEntry] = (), others: Sequence[Path] = ()
) -> CommandOutput:
    from squall.chaos.commands.outputs import RunsOutput
    from squall.chaos.commands.run_output import row_of

    return RunsOutput(
        runs=tuple(map(row_of, rows)),
        removed=tuple(str(each.path) for each in removed),
        no_runs=tuple(map(str, others)),
    )


def _compare(paths: Sequence[Path], runs: Path) -> int:
    from squall.reports.compared_page import differences, render
    from squall.reports.run_list import compared, one, plan_of

    if not 2 <= len(paths) <= MOST:
        hints = [f"what is in that folder: {typed('runs', '--runs', each)}" for each in paths if len(paths) == 1]
        raise click.UsageError("; ".join([*hints, f"two to {MOST} runs can be compared: squall runs RUN RUN"]))
    rows = [one(RunDirectory.open(each, runs).path) for each in paths]
    set_json_result(lambda: _output(rows))
    _show_beside("", compared(rows))
    differing, same = differences([plan_of(row.path) for row in rows])
    if differing:
        _show_beside("setting", differing)
    click.echo(f"{same} settings are the same in all plans." if differing else "They have the same plan.")
    click.echo(f"page: {render(rows)}")
    return 0


def _remove(runs: Path, going: Sequence[RunListEntry], *, dry_run: bool) -> list[RunListEntry]:
    """Remove these runs (`going`), and return those that were removed.

    A run is renamed before its first file is removed, so that a killed command leaves no half of a run. The next call
    removes what such a command left.
    """
    for each in () if dry_run else runs.glob(f"{GOING}*"):
        shutil.rmtree(each, ignore_errors=True)
    gone = []
    for row in going:
        try:
            if not dry_run:
                shutil.rmtree(row.path.rename(row.path.with_name(f"{GOING}{row.name}")))
        except OSError as error:
            click.echo(f"cannot be removed: {row.path}: {error.strerror}", err=True)
            continue
        gone.append(row)
        click.echo(f"{'would remove' if dry_run else 'removed'} {row.path}, {row.bytes / 2**20:.1f} MiB")
    total = sum(row.bytes for row in gone) / 2**20
    click.echo(f"{_many(gone)}, {total:.1f} MiB. Runs that are not valid stay.")
    return gone


def _many(runs: Sequence[RunListEntry]) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"


def _show(rows: Sequence[RunListEntry]) -> None:
    screen = console()
    if screen.width < TABLE_COLUMNS:
        for row in rows:
            _show_card(row, screen)
    else:
        screen.print(_table(rows))
    screen.print(f"{_many(rows)}, {sum(row.bytes for row in rows) / 2**20:,.1f} MiB")


def _show_card(row: RunListEntry, screen: Console) -> None:
    """Print a run as a few lines, for terminals that are too narrow for the table."""
    from rich.padding import Padding
    from rich.text import Text

    loss = Text(f", {row.loss}" if row.loss else "", "yellow")
    screen.print(Text(row.verdict, STYLES.get(row.verdict, "yellow")) + loss + Text(f"  {row.name}", "bold"))
    faults = f"faults: {', '.join(row.faults)} ({row.landed_of} landed)" if row.faults else "no faults"
    figures = [faults] if row.landed_of or not row.faults else [f"faults: {', '.join(row.faults)}"]
    figures += [] if row.acked is None else [f"{row.acked:,} acknowledged"]
    figures += [] if row.p99_ms is None else [f"p99 {row.p99_ms:,.1f} ms"]
    figures += [] if row.unavailable_s is None else [f"longest unavailability {row.unavailable_s:.1f} s"]
    lines = [f"{row.workload}; {row.where}; {row.configuration}", "; ".join(figures)]
    lines += [f"- {each}" for each in row.findings]
    lines += [f"- permitted: {'; '.join(row.permitted)}"] if row.permitted else []
    for line in lines:
        screen.print(Padding(Text(line), (0, 0, 0, 4), expand=False))
    screen.print()


def _table(rows: Sequence[RunListEntry]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("run", "verdict", "workload", "configuration", "where", "faults"):
        table.add_column(name, no_wrap=name in ("run", "verdict"))
    for name in ("landed", "acknowledged", "p99, ms", "unavailable, s"):
        table.add_column(name, justify="right")
    table.add_column("found, or why nothing is proven", overflow="fold")
    for row in rows:
        table.add_row(
            row.name,
            Text(row.verdict, STYLES.get(row.verdict, "yellow")),
            row.workload,
            row.configuration,
            row.where,
            ", ".join(row.faults),
            row.landed_of,
            "" if row.acked is None else f"{row.acked:,}",
            "" if row.p99_ms is None else f"{row.p99_ms:,.1f}",
            "" if row.unavailable_s is None else f"{row.unavailable_s:.1f}",
            _found(row),
        )
    return table


def _found(row: RunListEntry) -> Text:
    from rich.text import Text

    parts = [Text(each) for each in row.findings]
    parts += [Text(row.loss, "yellow")] if row.loss else []
    parts += [Text(f"{each} (permitted)") for each in row.permitted]
    return Text("; ").join(parts)


def _show_beside(head: str, cells: Sequence[tuple[str, Sequence[str]]]) -> None:
    from rich import box
    from rich.table import Table

    numbers = map(str, range(1, len(cells[0][1]) + 1))
    table = Table(head, *numbers, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for what, values in cells:
        table.add_row(what, *values, style="" if len(set(values)) == 1 else "bold")
    console().print(table)
