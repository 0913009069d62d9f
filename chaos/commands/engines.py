"""Defines the option --engine of the commands that judge runs. It selects what searches the history: Spark or plain
Python.
"""

from __future__ import annotations

import click

from squall.checkers.engines import LARGEST_MIB, REFERENCE, SPARK

engine_flag = click.option(
    "--engine",
    type=click.Choice([SPARK, REFERENCE]),
    default=SPARK,
    show_default=True,
    help=f"The engine that searches the history: spark needs Java; reference is plain Python, for up to {LARGEST_MIB} "
    "MiB of history.jsonl.",
)
