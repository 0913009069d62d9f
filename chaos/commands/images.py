"""Implements `squall images`, which makes the container images before a run needs them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from squall.chaos.toolchain.engine import DockerEngine


@click.command()
@click.option("--standalone", is_flag=True, help="Also make squall/broker: one broker, to start beside your tests.")
@click.option(
    "--harness", is_flag=True, help="Also make squall/squall: the program squall, for machines with Docker only."
)
def command(standalone: bool, harness: bool) -> int:
    """Make the images that the Docker engine does not have yet: brokers, Toxiproxy, and the frame relay, which applies
    faults to single Kafka requests.

    `squall run --runtime docker` does this itself. `squall images` also gives the images the names in
    compose/cluster.yaml, so that you can start a cluster by hand. The first time takes some minutes, because a base
    image is pulled, or made of Debian's packages (as root). To use another base image, with Python 3.11 or newer, set
    SQUALL_BASE_IMAGE.

    \b
    Examples:
      squall images
      docker compose -f compose/cluster.yaml up
      squall images --standalone && docker run -p 9092:9092 squall/broker
      squall images --harness && docker run --rm squall/squall sim --seed 7
    """
    from squall.chaos.toolchain.engine import find_engine
    from squall.chaos.toolchain.images import ensure_images, harness_image, name_latest, standalone_image

    engine = find_engine()
    say = partial(click.echo, err=True)
    made = ensure_images(engine, say)
    named = name_latest(engine, made)
    click.echo(f"{named.broker} is {made.broker}")
    click.echo(f"{named.toxiproxy} is {made.toxiproxy}")
    if standalone:
        broker = standalone_image(engine, made, say)
        click.echo(f"{broker} is one broker{_size(engine, broker)}: docker run -p 9092:9092 squall/broker")
    if harness:
        program = harness_image(engine, say)
        click.echo(f"{program} is squall{_size(engine, program)}: docker run --rm squall/squall sim --seed 7")
    return 0


def _size(engine: DockerEngine, image: str) -> str:
    return f" ({engine.image_bytes(image) / 1e6:.0f} MB, {engine.image(image)})"
