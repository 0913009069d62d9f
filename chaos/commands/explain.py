"""`squall explain`: the story of one finding, in the terminal."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from chaos.commands import completions
from chaos.errors import Refused
from chaos.runs.directory import LATEST, RUNS, RunDirectory
from chaos.screen import columns

READABLE = 100
"""Columns: nobody reads longer lines of prose."""


@click.command()
@click.argument("run", type=click.Path(path_type=Path), shell_complete=completions.runs, default=RUNS / LATEST)
@click.argument("anomaly", default="", shell_complete=completions.findings)
def command(run: Path, anomaly: str) -> int:
    """What one finding of a run means, why it is judged so, what caused it, and its story. The page has the same with
    pictures.

    RUN is a run directory; without it the latest one. Without ANOMALY: what there is to explain.

    \b
    Examples:
      squall explain
      squall explain runs/latest lost-write
      squall explain runs/latest "G1a (late end)"
    """
    from checkers.anomalies.registry import CATALOG
    from reports.explained import NotThere, explained, listing

    path, width = RunDirectory.open(run).path, min(columns(), READABLE)
    if not anomaly:
        click.echo(listing(path, width), nl=False)
        return 0
    try:
        click.echo(explained(path, anomaly, width), nl=False)
    except NotThere as instead:
        near = [] if anomaly in CATALOG else difflib.get_close_matches(anomaly, CATALOG, n=1)
        raise Refused(f"{instead}" + (f"; did you mean {near[0]!r}?" if near else "")) from None
    return 0
