"""Implements `squall explain`, which prints the story of one finding in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from squall.chaos.commands import completions
from squall.chaos.commands.json_output import json_flag, set_json_result
from squall.chaos.errors import PreconditionError
from squall.chaos.nearest import nearest
from squall.chaos.runs.directory import LATEST, RUNS, RunDirectory
from squall.chaos.screen import columns
from squall.chaos.typed import place, shortened, typed

if TYPE_CHECKING:
    from squall.chaos.commands.outputs import CommandOutput

READABLE = 100
"""Limits the width of prose, in columns, because longer lines are hard to read."""


@click.command()
@click.argument("run", type=click.Path(path_type=Path), shell_complete=completions.runs, default=RUNS / LATEST)
@click.argument("anomaly", default="", shell_complete=completions.findings)
@json_flag
def command(run: Path, anomaly: str) -> int:
    """Tell the story of one finding of a run: what it means, why it has its verdict, its causes, and what happened, in
    order. The run's page has the same with pictures.

    RUN is a run directory; the default is the latest run. Without ANOMALY, list the findings.

    \b
    Examples:
      squall explain
      squall explain runs/latest lost-write
      squall explain runs/latest "G1a (late end)"
    """
    from squall.checkers.anomalies.registry import CATALOG
    from squall.reports.explained import FindingNotFound, explained, findings_of, listing
    from squall.reports.run_files import PAGE

    path, width = RunDirectory.open(run).path, min(columns(), READABLE)
    set_json_result(lambda: _output(path, anomaly))
    if not anomaly:
        click.echo(listing(path, width), nl=False)
        if found := findings_of(path):
            click.echo(f"the story of one: {typed('explain', path, found[0])}")
        if (page := path / PAGE).exists():
            click.echo(f"page: {place(page)}")
        return 0
    try:
        click.echo(explained(path, anomaly, width, shortened), nl=False)
    except FindingNotFound as instead:
        near = "" if anomaly in CATALOG else nearest(anomaly, CATALOG)
        raise PreconditionError(f"{instead}" + (f"; did you mean {near!r}?" if near else "")) from None
    return 0


def _output(path: Path, name: str) -> CommandOutput:
    from squall.chaos.commands.outputs import ExplainedFinding, ExplainedWitness, ExplainOutput, FindingCause
    from squall.chaos.commands.run_output import finding_of
    from squall.reports import checks
    from squall.reports.causes import WitnessGroup, groups_of
    from squall.reports.explained import found_as, stories_of
    from squall.reports.run_files import read_run

    def cause_of(group: WitnessGroup) -> FindingCause:
        witnesses_json = tuple(
            ExplainedWitness(
                text=text, fields=dict(fields), story=tuple(f"{line.t:.3f} s  {line.text}" for line in lines)
            )
            for text, lines, fields in group.witnesses
        )
        return FindingCause(cause=group.cause, witnesses=witnesses_json)

    files = read_run(path)
    found = found_as(checks.checks_of(files), name)
    groups = groups_of(files, found)
    return ExplainOutput(
        run=str(path),
        verdict=checks.word_of(files),  # type: ignore[arg-type]  # one of the three
        sentence=checks.sentence(files),
        reasons=tuple(checks.reasons_of(files)),
        findings=tuple(
            ExplainedFinding(**finding_of(each), causes=tuple(map(cause_of, groups[each.key]))) for each in found
        ),
        stories=tuple(each.text for each in stories_of(files, found)) if name else (),
    )
