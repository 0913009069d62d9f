"""Implements `squall bench`, which measures Squall's brokers, alone, beside Apache Kafka or against an earlier commit.
"""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from squall.chaos.errors import PreconditionError
from squall.chaos.toolchain.extras import missing
from squall.chaos.toolchain.places import is_checkout
from squall.chaos.typed import typed

ROOT = Path(__file__).resolve().parents[2]


class SecondsParam(click.FloatRange):
    """Parses an option that is a number of seconds, from `least` to 600."""

    def __init__(self, least: float) -> None:
        super().__init__(least, 600)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert as `click.FloatRange` does, but refuse "nan", which `click.FloatRange` accepts."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail("nan is no number of seconds", param, ctx)
        return number


@click.command()
@click.option(
    "--against", metavar="REV", help="Measure this checkout and REV in turn: a commit, a checkout's directory, or a "
    "directory with a prototype of the data path."
)  # fmt: skip
@click.option("--pairs", type=click.IntRange(1, 1000), help="With --against: turns of both. Default: 10.")
@click.option("--peer", type=click.Choice(["none", "kafka"]), help="Also measure Apache Kafka. Default: none.")
@click.option(
    "--rounds", type=click.IntRange(1, 1000), help="Without --against: rounds, each on new clusters. Default: 3."
)
@click.option("--seconds", type=SecondsParam(0.5), help="Length of each load. Default: 6; with --against 2.")
@click.option("--warmup", type=SecondsParam(0), help="Seconds of load before a JVM counts. Default: 60.")
@click.option("--only", metavar="TEXT", help="Measure only what has TEXT in its name in the table.")
@click.option("--failover/--no-failover", default=None, help="Without --against: kill leaders. Default: yes.")
@click.option("--json", metavar="FILE", type=click.Path(dir_okay=False), help="Also write every figure to this file.")
def command(**given: object) -> int:
    """Measure brokers, and print a table: records, acknowledgements, transactions, groups, failover, start.

    Three of Squall's brokers run on this machine under a load by confluent-kafka. With --peer kafka, Apache Kafka gets
    the same load in the same run. With --against, two checkouts take turns, and every figure is a ratio with its
    interval: loads, latency, launch, failover, a run from start to verdict, simulations. docs/bench.md explains them.

    \b
    Examples:
      squall bench --rounds 1 --seconds 2          a quick look
      squall bench --peer kafka                    compared with Apache Kafka
      squall bench --only groups --peer kafka      rebalances, commits and reads of groups
      squall bench --against HEAD~20               before and now, in turn
      squall bench --against v0.3 --only sim       only simulations

    \b
    Exit codes: 0 measured; 1 a figure of Squall's broker is missing or, with --against, worse beyond its interval;
    3 wrong usage, or the peer is not available.
    """
    if not is_checkout():
        raise PreconditionError(
            "squall bench needs a checkout of Squall: the benchmark is not part of what is installed"
        )
    alone = ("pairs",) if not given["against"] else ("rounds", "failover")
    if unfit := [name for name in alone if given[name] is not None]:
        raise click.UsageError(f"--{unfit[0]} is {'for' if 'pairs' in unfit else 'not for'} --against REV")
    path = Path(str(given["json"] or "."))
    # Without --json the path is the current folder, so it must be a folder exactly if --json is missing.
    if path.is_dir() != (given["json"] is None) or not path.resolve().parent.is_dir():
        raise click.UsageError(f"--json {path}: its folder is not there, or it is a folder itself")
    if missing("clients"):
        needed = "confluent-kafka is not installed, which loads the brokers"
        raise PreconditionError(f"{needed}: {typed('setup', '--clients')}")
    words = []
    for name, value in given.items():
        if name in ("against", "json") and value and (name == "json" or Path(str(value)).is_dir()):
            value = Path(str(value)).resolve()  # the benchmark runs elsewhere
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{name}")
        elif value is not None:
            words.append(f"--{name}={value}")
    return subprocess.call([sys.executable, "-m", "squall.chaos.standard_streams", "bench", *words], cwd=ROOT)
