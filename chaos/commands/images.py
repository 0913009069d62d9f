"""`squall images`: the images that containers run, made before they are needed."""

from __future__ import annotations

import click


@click.command()
def command() -> int:
    """Make the images of brokers, Toxiproxy and the frame relay where the Docker engine does not have them yet.

    `squall run --runtime docker` does so itself. This names them as compose/cluster.yaml does, so that a cluster can
    be started by hand. The first time takes some minutes: a base image is pulled, or made of Debian's packages (as
    root); SQUALL_BASE_IMAGE names another one with Python 3.11 or newer.

    \b
    Examples:
      squall images
      docker compose -f compose/cluster.yaml up
    """
    from chaos.toolchain.engine import find_engine
    from chaos.toolchain.images import ensure_images, name_latest

    engine = find_engine()
    made = ensure_images(engine, lambda line: click.echo(line, err=True))
    named = name_latest(engine, made)
    click.echo(f"{named.broker} is {made.broker}")
    click.echo(f"{named.toxiproxy} is {made.toxiproxy}")
    return 0
