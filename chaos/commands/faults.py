"""Implements `squall faults`, which lists the faults of each runtime, what they need, and what is missing here."""

from __future__ import annotations

import click

from squall.chaos.faults.kind import RUNTIMES, SIDES, TRAFFIC
from squall.chaos.faults.targets import CLIENT_TARGETS, LINK_TARGET, NODE_TARGETS, ZONE_TARGET
from squall.chaos.plans import support

PLANS = f"""In plans:
  target  {", ".join(NODE_TARGETS)}, {ZONE_TARGET}:N, {", ".join(CLIENT_TARGETS)};
          leader:TOPIC-N; TARGET not controller (or node:N, leader:TOPIC-N);
          {LINK_TARGET}:A->B, one directed link, as in link:1->2 or link:zone:1->leader
  side    {", ".join(SIDES)}; for partition and protocol also {" and ".join(TRAFFIC)}
  when    isr:TOPIC-N == 1, leader:TOPIC-N, controller, fsync:N, write:N, send:N, after fault N began (or ended);
          joined by `and`
Parameters, and all of this in full: docs/faults.md"""


@click.command()
@click.option("--runtime", type=click.Choice(RUNTIMES), help="Only faults that this runtime can inject.")
@click.option("--markdown", is_flag=True, help="Print the table of docs/faults.md.")
def command(runtime: str | None, markdown: bool) -> int:
    """List the faults of each runtime: what each fault needs, what is missing on this machine, and how to get it. Then
    list the targets that a plan can name, the sides of a link fault (whose connections it hits), and the conditions
    that start a fault.

    \b
    Examples:
      squall faults
      squall faults --runtime docker
    """
    if markdown:
        click.echo(support.table(), nl=False)
        return 0
    for name in (runtime,) if runtime else RUNTIMES:
        _tell(name)
    click.echo(PLANS)
    return 0


def _tell(runtime: str) -> None:
    actions = support.everything().values()
    can = {action.name: action for action in actions if support.possible(action, runtime)}
    wanted = {need.name: need for action in can.values() for need in support.needs(action, runtime)}
    lacking = {name: sentences[0] for name, need in wanted.items() if (sentences := support.missing([need]))}
    click.echo(f"{runtime}  needs {', '.join(wanted) or 'nothing'}")
    for what, why in lacking.items():
        click.echo(f"  missing: {what}: {why}")
    width = max(len(name) for name in support.everything())
    for name, action in can.items():
        of = [need.name for need in support.needs(action, runtime) if need.name in lacking]
        how = support.possible(action, runtime)
        notes = [*([how] if how != "yes" else []), *([f"needs {', '.join(of)}"] if of else [])]
        click.echo(f"  {name:<{width}}  {action.title}" + (f"  ({'; '.join(notes)})" if notes else ""))
    cannot = [action.name for action in actions if action.name not in can]
    if cannot:
        click.echo(f"  not here: {', '.join(cannot)}")
    click.echo()
