"""Implements `squall setup`, which lists optional components with size and time, and installs those that the flags
name.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from squall.chaos.errors import HarnessError
from squall.chaos.typed import PROGRAM, typed

if TYPE_CHECKING:
    from squall.chaos.toolchain.components import Component
    from squall.chaos.toolchain.lacks import MissingDependency


@click.command()
@click.option("--clients", is_flag=True, help="Install confluent-kafka, aiokafka and kafka-python.")
@click.option("--kafka", is_flag=True, help="Install Apache Kafka, with Debian's Java and Maven.")
@click.option("--toxiproxy", is_flag=True, help="Build Toxiproxy.")
@click.option("--java", is_flag=True, help="Install a Java for Spark, and make an archive of Spark's classes.")
@click.option("--chromium", is_flag=True, help="Install Chromium, which looks at pages in tests.")
@click.option("--engine", is_flag=True, help="Install and start a Docker engine, and make its images.")
def command(**asked: bool) -> int:
    """Install what the options name. Without options, list what can be installed, its size and time, and what is here.

    Runs fetch Java and Toxiproxy themselves when they need them; only this command installs the rest. Debian's packages
    (a complete JDK, Maven, Chromium, a Docker engine) need root: for other users, `setup` prints the command that root
    has to type. `setup` does not touch what is installed already.

    \b
    Examples:
      squall setup
      squall setup --clients --kafka

    \b
    Exit codes: 0 listed, or everything that the options name is installed; 3 something could not be installed.
    """
    from squall.chaos.toolchain.components import components

    there = components()
    wanted = [each for each in there if asked[each.name]]
    if not wanted:
        _list(there)
    failed = [each for each in wanted if not _installed(each)]
    return 3 if failed else 0


def _list(components: list[Component]) -> None:
    brings, takes = (max(map(len, column)) for column in zip(*((c.brings, c.takes) for c in components), strict=True))
    absent = []
    for each in components:
        here = not each.part().costs
        line = f"--{each.name:<9}  {each.brings:<{brings}}  {each.takes:<{takes}}  {'here' if here else ''}"
        click.echo(line.rstrip())
        absent += [] if here else [f"--{each.name}"]
    if absent:
        click.echo(f"all that is not here: {typed('setup', *absent)}")


def _installed(component: Component) -> bool:
    """Install one component, and return whether it is here now."""
    found = component.part()
    try:
        if found.costs:
            click.echo(f"{component.name}: {component.brings} ({component.takes})", err=True)
            component.install(lambda line: click.echo(line, err=True))
            found = component.part()
    except HarnessError as trouble:
        click.echo(f"squall: {trouble}", err=True)
        return False
    click.echo(f"{component.name}: {found.found}")
    return True


def offer(lacks: Sequence[MissingDependency]) -> None:
    """Ask on a terminal whether to install what a run lacks, and install it. Without a terminal, do nothing."""
    flags = list(dict.fromkeys(lack.flag for lack in lacks if lack.flag))
    if not flags or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    from squall.chaos.toolchain.components import components

    for lack in lacks:
        click.echo(lack.what, err=True)
    takes = "; ".join(each.takes for each in components() if f"--{each.name}" in flags)
    if click.confirm(f"Install it now with {typed('setup', *flags)} ({takes})?", err=True):
        subprocess.run([PROGRAM, "setup", *flags])
        importlib.invalidate_caches()  # what is there now can be imported
