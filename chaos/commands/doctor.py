"""`squall doctor`: what this machine has for Squall, what it lacks, what that costs, and how to get it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import click

from chaos.commands.json_output import answer, json_flag
from chaos.errors import HarnessError

if TYPE_CHECKING:
    from chaos.commands.outputs import Output
    from chaos.toolchain.lookout import Part


@click.command()
@click.option("--fetch", is_flag=True, help="First fetch and build what is possible without root.")
@json_flag
def command(fetch: bool) -> int:
    """Look for what runs and tests use: Python, Java, Toxiproxy, a Docker engine, Apache Kafka, clients, limits.

    One screen: what was found, what is missing, what that costs, how to get it. Looking changes nothing. With --fetch
    a Java for Spark, an archive of Spark's classes, Toxiproxy, Apache Kafka's jars (where Java and Maven are here) and
    containers' images (where an engine answers) are fetched, built or made first, as runs would.

    \b
    Examples:
      squall doctor
      squall doctor --fetch

    \b
    Exit codes: 0 `squall run` can be had here, 3 it cannot, or something could not be fetched.
    """
    from chaos.toolchain.lookout import parts

    troubled = _fetch() if fetch else False
    found = parts()
    answer(lambda: _output(found))
    width = max(len(part.name) for part in found)
    for part in found:
        click.echo(f"{part.name:<{width}}  {part.found or 'not here'}")
        for word, said in (("", part.costs), ("get it: ", part.get)):
            if said:
                click.echo(f"{'':<{width}}    {word}{said}")
    linux = platform.system() == "Linux"
    if not linux:
        click.echo("`squall run` needs Linux; `squall sim` runs anywhere")
    return 0 if linux and not troubled else 3


def _output(found: Iterable[Part]) -> Output:
    from chaos.commands import outputs

    told = (outputs.Part(name=each.name, found=each.found, costs=each.costs, get=each.get) for each in found)
    return outputs.DoctorOutput(parts=tuple(told))


def _fetch() -> bool:
    """Fetch what runs would. Whether something that should have come did not."""
    from chaos.toolchain.class_archive import class_archive
    from chaos.toolchain.engine import find_engine
    from chaos.toolchain.engine_lacks import engine_lacks
    from chaos.toolchain.images import ensure_images
    from chaos.toolchain.java import java
    from chaos.toolchain.kafka import apache_kafka, kafka_lacks
    from chaos.toolchain.toxiproxy import toxiproxy_server

    def say(line: str) -> None:
        click.echo(line, err=True)

    def images() -> object:
        return ensure_images(find_engine(), say)

    def spark() -> object:
        return class_archive(java(say), say)

    wanted: list[Callable[[], object]] = [spark, partial(toxiproxy_server, say)]
    if not kafka_lacks():
        wanted.append(partial(apache_kafka, say))
    if not engine_lacks():
        wanted.append(images)
    troubled = False
    for get in wanted:
        try:
            get()
        except HarnessError as trouble:
            say(f"squall: {trouble}")
            troubled = True
    return troubled
