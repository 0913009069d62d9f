"""Implements `squall cluster up`, which runs a development cluster in the foreground."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from squall.chaos.errors import PreconditionError
from squall.chaos.interrupts import stoppable

if TYPE_CHECKING:
    from squall.chaos.runtimes.process.runtime import ProcessRuntime

ZONE = "CLIENT"
LOOK_S = 0.2


@click.group()
def command() -> None:
    """Run a development cluster on this machine.

    \b
    Examples:
      squall cluster up
      squall cluster up -n 1 --port 9092
      squall cluster up -n 3 --data ./data --set default.replication.factor=3
    """


@command.command()
@click.option("-n", "--nodes", default=3, show_default=True, type=click.IntRange(1, 64), help="Number of brokers.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Keep the cluster in this folder.")
@click.option(
    "--port",
    default=9092,
    show_default=True,
    type=click.IntRange(1024, 65000),
    help="Client port of broker 1; the other brokers use the ports after it.",
)
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="A setting of all brokers; may be repeated.")
def up(nodes: int, data: Path | None, port: int, given: tuple[str, ...]) -> int:
    """Start brokers on loopback and wait for Ctrl-C, which stops them in good order.

    Without --data, the cluster's data is removed at the end. If you start it again with the same --data, it has all its
    data. It has no Toxiproxy: to inject faults, use `squall run`.
    """
    import trio

    from squall.chaos.runtimes.broker_settings import notes
    from squall.chaos.runtimes.process.runtime import ProcessRuntime

    with ExitStack() as stack:
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="squall-cluster-")))
        settings = dict(_setting(text) for text in given)
        for line in notes(settings, nodes, ours=True):
            click.echo(line, err=True)
        runtime = ProcessRuntime(folder, nodes=nodes, zones=(ZONE,), settings=settings, proxied=False, client_port=port)
        with suppress(KeyboardInterrupt):  # that is how one ends it
            trio.run(_serve, runtime, folder)
    return 0


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--set")
    return name.strip(), value.strip()


async def _serve(runtime: ProcessRuntime, folder: Path) -> None:
    """Run the cluster until a signal asks for its end. Further signals only print a line: stopping the brokers takes
    bounded time.
    """

    async def serving() -> None:
        refused = False
        try:
            await runtime.start()
            brokers = "1 broker is" if len(runtime.nodes) == 1 else f"{len(runtime.nodes)} brokers are"
            click.echo(f"{brokers} up, with their files in {folder}; Ctrl-C stops them")
            click.echo(f"bootstrap.servers={runtime.bootstrap(ZONE)}")
            await _tell_of_exits(runtime)
        except PreconditionError:
            refused = True
            raise
        finally:
            await runtime.stop()
            if not refused:
                click.echo("stopped")

    await stoppable(serving, click.echo)


async def _tell_of_exits(runtime: ProcessRuntime) -> None:
    """Print a line for each broker that ends by itself; the other brokers keep running."""
    import trio

    reported = 0
    while True:
        for gone in runtime.exits()[reported:]:
            click.echo(
                f"broker {gone.node} ended by itself with {gone.code}: see {runtime.log_path(gone.node)}", err=True
            )
            reported += 1
        await trio.sleep(LOOK_S)
