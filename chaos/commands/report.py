"""Implements `squall report`, which renders a run's page again, or the durability report of a night (of all runs of one
`squall nightly`).
"""

from __future__ import annotations

from pathlib import Path

import click

from squall.chaos.commands import completions
from squall.chaos.runs.directory import LATEST, RUNS, RunDirectory
from squall.chaos.screen import console


@click.command()
@click.argument("run", type=click.Path(path_type=Path), required=False, shell_complete=completions.runs)
@click.option("--nightly", type=click.Path(path_type=Path), metavar="DIR", help="Report on this night.")
@click.option("--nights", type=click.IntRange(1), metavar="N", help="With --nightly: count the last N nights up to it.")
@click.option(
    "--since", type=click.DateTime(["%Y-%m-%d"]), metavar="DATE", help="With --nightly: count nights since that day."
)
@click.option(
    "--where", multiple=True, metavar="AXIS=VALUE", help="With --nightly: count only these runs. May be repeated."
)
def command(run: Path | None, nightly: Path | None, nights: int | None, since: object, where: tuple[str, ...]) -> int:
    """Render report.html and junit.xml of a run directory again, and print the result.

    RUN is a run directory; the default is the latest run. `report` judges nothing again; `squall verify` does.

    With --nightly, make the durability report of a night (of all runs of one `squall nightly`). For each configuration
    and class of faults it shows what was lost, for how long nothing could be written, and what is new. The figures come
    from the histories of the night's runs, and from the store of nights, a folder beside DIR with the results of each
    night. The page is DIR/report/index.html; a selection by --nights, --since or --where has a page of its own beside
    it.

    \b
    Examples:
      squall report
      squall report runs/20260704T120000-seed7
      squall report --nightly nights/20260704T010000
      squall report --nightly nights/20260704T010000 --nights 30 --where acks=1
    """
    if nightly is None:
        if nights or since or where:
            raise click.UsageError("--nights, --since and --where say what is counted of nights: add --nightly DIR")
        return _of_run(run or RUNS / LATEST)
    if run is not None:
        raise click.UsageError("name either a run or, with --nightly, a night")
    if nights and since:
        raise click.UsageError("--nights and --since both say which nights are counted: give one of them")
    return _of_night(nightly, nights, since, where)


def _of_run(run: Path) -> int:
    from squall.chaos.typed import shortened
    from squall.checkers.history.conversion import convert_once
    from squall.reports.junit import write_junit
    from squall.reports.page import render
    from squall.reports.terminal import summary

    path = RunDirectory.open(run).path
    convert_once(path)
    render(path)
    write_junit(path)
    summary(path, console(), shortened)
    return 0


def _of_night(path: Path, nights: int | None, since: object, where: tuple[str, ...]) -> int:
    from datetime import datetime

    from squall.chaos.commands.durability import NightSelection, make_report
    from squall.reports.nightly.terminal import show

    pairs = [each.partition("=") for each in where]
    if wrong := next(
        (text for text, (axis, equals, value) in zip(where, pairs, strict=True) if not (axis and equals)), None
    ):
        raise click.UsageError(f"--where {wrong}: it is AXIS=VALUE, for example acks=1")
    day = since.strftime("%Y-%m-%d") if isinstance(since, datetime) else ""
    wanted = NightSelection(nights, day, {axis: value for axis, _, value in pairs})
    page, report = make_report(path, wanted, console(stderr=True).print)
    show(report, console())
    click.echo(f"page: {page}")
    return 0
