"""Implements `squall export`, which packs a run into one zip to send."""

from __future__ import annotations

from pathlib import Path

import click

from squall.chaos.commands import completions
from squall.chaos.errors import PreconditionError
from squall.chaos.runs.directory import LATEST, RUNS, RunDirectory
from squall.chaos.toolchain.extras import no_report
from squall.chaos.typed import typed

NAMED = 5
"""Limits how many suspected secrets the error of `squall export` names, each as FILE:LINE. The error gives only the
number of the others.
"""


@click.command()
@click.argument("run", type=click.Path(path_type=Path), shell_complete=completions.runs, default=RUNS / LATEST)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The zip to write. [default: NAME.zip in this folder]",
)
@click.option("--even-with-secrets", is_flag=True, help="Pack files although a line looks like a password or a key.")
def command(run: Path, out: Path | None, even_with_secrets: bool) -> int:
    """Pack a run into a zip to send: its page, which opens offline, and the files that `squall verify` needs.

    RUN is a run directory; the default is the latest run. The zip has no broker data and no log of this machine. If you
    unpack it in the folder runs/ of a checkout, `squall verify` judges the run again. Without the extra [figures], the
    zip has no page.

    \b
    Examples:
      squall export
      squall export runs/20260704T120000-seed7 --out for-you.zip
    """
    from squall.reports.export import suspects, write_zip
    from squall.reports.raw_files import size_text

    directory = RunDirectory.open(run)
    found = [] if even_with_secrets else list(suspects(directory.path))
    if found:
        named = ", ".join(found[:NAMED]) + (f" and {len(found) - NAMED} more" if len(found) > NAMED else "")
        raise PreconditionError(f"{named}: this looks like a password or a key. If it is none, add --even-with-secrets")
    path = out or Path(f"{directory.run_id}.zip")
    replaced = ", in place of an earlier file" if path.exists() else ""
    try:
        entries = write_zip(directory.path, path, _page(directory))
    except OSError as error:
        raise PreconditionError(f"{error.filename or path}: {error.strerror}") from None
    for entry in entries:
        click.echo(f"{size_text(entry.size):>9}  {entry.name}")
    whole = sum(entry.size for entry in entries)
    unpacked = f"unpacked {size_text(whole)} in {len(entries)} files"
    click.echo(f"{path}: {size_text(path.stat().st_size)}, {unpacked}{replaced}")
    again = typed("verify", f"runs/{directory.run_id}")
    click.echo(f"judge it again: unpack it in runs/ of a checkout (or elsewhere, and name that folder), then {again}")
    return 0


def _page(directory: RunDirectory) -> str | None:
    """Return the HTML of the run's page for the zip. If the libraries that make pages are not installed, print that and
    return None.
    """
    from squall.checkers.history.conversion import convert_once
    from squall.reports.export import page_to_send

    try:
        convert_once(directory.path)
        return page_to_send(directory.path)
    except ModuleNotFoundError as missing:  # the files are enough to judge the run again
        click.echo(no_report(missing))
        return None
