"""`squall clean`: end what interrupted runs left behind."""

from __future__ import annotations

import click


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be ended.")
def command(dry_run: bool) -> int:
    """End processes that an interrupted run left behind, and only those that are provably its own.

    A process is ended if the registry of runs names it, it started when the registry says, it carries the run's id,
    and the run's harness is gone. Runs under way are left alone.

    \b
    Examples:
      squall clean
      squall clean --dry-run
    """
    from chaos.runtimes.process import registry

    ended = under_way = 0
    for run in registry.runs():
        if run.harness_alive:
            under_way += 1
            click.echo(f"{run.run}: under way with {len(run.processes)} processes, left alone")
            continue
        names = [f"{each.what} (pid {each.process.pid})" for each in run.processes] if dry_run else registry.end(run)
        ended += len(names)
        for name in names:
            click.echo(f"{run.run}: {'would end' if dry_run else 'ended'} {name}")
    if not ended:
        click.echo("nothing was left behind" + (f" ({under_way} under way)" if under_way else ""))
    return 0
