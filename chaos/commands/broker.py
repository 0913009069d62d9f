"""Implements `squall broker`, which replaces its own OS process with a broker (exec)."""

from __future__ import annotations

import os
import sys

import click


@click.command()
@click.option(
    "--config",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="File of Kafka-style settings. All its mistakes are reported at once. docs/broker.md lists what is ignored.",
)
def command(config: str) -> None:
    """Run one broker until SIGTERM (controlled shutdown) or Ctrl-C.

    \b
    Example:
      squall broker --config broker-1.properties
    """
    # Replace this process, so that no module of the harness is in the broker's process.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "squall.broker", "--config", config])
