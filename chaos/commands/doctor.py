"""Implements `squall doctor`, which prints what this machine has for Squall, what is missing, what does not work
without it, and how to install it.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from squall.chaos.commands.json_output import json_flag, set_json_result

if TYPE_CHECKING:
    from squall.chaos.commands.outputs import CommandOutput
    from squall.chaos.toolchain.lookout import ComponentStatus


@click.command()
@json_flag
def command() -> int:
    """Look for what runs and tests use: Python, Java, Toxiproxy, a Docker engine, Apache Kafka, clients, limits.

    One screen shows what was found, what is missing, what does not work without it, and how to get it. `doctor` changes
    nothing; `squall setup` installs what is missing.

    \b
    Exit codes: 0 `squall run` works here, 3 it does not.
    """
    from squall.chaos.toolchain.lookout import parts

    found = parts()
    set_json_result(lambda: _output(found))
    width = max(len(part.name) for part in found)
    for part in found:
        click.echo(f"{part.name:<{width}}  {part.found or 'not here'}")
        for word, said in (("", part.costs), ("get it: ", part.get)):
            if said:
                click.echo(f"{'':<{width}}    {word}{said}")
    linux = platform.system() == "Linux"
    if not linux:
        click.echo("`squall run` needs Linux; `squall sim` runs anywhere")
    return 0 if linux else 3


def _output(found: Iterable[ComponentStatus]) -> CommandOutput:
    from squall.chaos.commands import outputs

    parts = (
        outputs.DoctorComponent(name=each.name, found=each.found, costs=each.costs, get=each.get) for each in found
    )
    return outputs.DoctorOutput(parts=tuple(parts))
