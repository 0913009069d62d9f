"""`squall verify`: judge a run directory again."""

from __future__ import annotations

from pathlib import Path

import click

from chaos.screen import console


@click.command(
    epilog="""\b
Examples:
  squall verify runs/latest
  squall verify runs/latest --expect safe

\b
Exit codes: 0 valid, 1 an anomaly that the configuration does not permit,
2 unknown, 3 usage."""
)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--expect",
    type=click.Choice(["config", "safe", "loss"]),
    help="Judge by these promises instead of those that the plan names.",
)
def command(run: Path, expect: str | None) -> int:
    """Judge a recorded run again: also one whose harness was killed in the middle."""
    from chaos.commands.conclusion import conclude
    from chaos.runs.directory import RunDirectory
    from chaos.runs.judgement import judge

    directory = RunDirectory.open(run)
    judge(directory, console(stderr=True), expect=expect)
    return conclude(directory, keep_data=True)
