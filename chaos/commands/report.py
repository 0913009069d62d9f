"""`squall report`: a run's page, again."""

from __future__ import annotations

from pathlib import Path

import click

from chaos.runs.directory import LATEST, RUNS, RunDirectory
from chaos.screen import console


@click.command()
@click.argument("run", type=click.Path(path_type=Path), default=RUNS / LATEST)
def command(run: Path) -> int:
    """Render report.html and junit.xml of a run directory again, and print what stands in them.

    RUN is a run directory; without it the latest one. Nothing is judged again: that is what `squall verify` does.

    \b
    Examples:
      squall report
      squall report runs/20260704T120000-seed7
    """

    from chaos.typed import here
    from reports.junit import write_junit
    from reports.page import render
    from reports.terminal import summary

    path = RunDirectory.open(run).path
    render(path)
    write_junit(path)
    summary(path, console(), here)
    return 0
