"""Starts Spark for judging a run: its command, memory and Java."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from squall.chaos.runtimes.real.processes.child import TETHER
from squall.chaos.toolchain.extras import missing
from squall.chaos.toolchain.java import Java
from squall.chaos.toolchain.lacks import Lack
from squall.checkers.engines import REFERENCE, SPARK


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Holds the user's options for Spark."""

    master: str = "local[*]"
    """As Spark writes it: every core of this machine."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's own settings, over those that a history of that size has."""
    limit_s: float = 3600
    """How long it may take."""


HERE = SparkOptions()


def spark_lacks() -> list[Lack]:
    """Return the Python packages that Spark needs and that are not installed."""
    return [Lack(f"{each}; --engine {REFERENCE} does without") for each in missing(SPARK)]


def command_of(run_dir: Path, java: Java, archive: Path | None, spark: SparkOptions = HERE) -> list[str]:
    """The command that looks for a run's anomalies. Tethered: a harness that is killed leaves no Spark that goes on.

    `archive`: of Spark's classes, if there is one.
    """
    tether = (sys.executable, "-I", "-S", str(TETHER), str(os.getpid()))
    command = [*tether, sys.executable, "-P", "-m", "squall.spark_analysis", str(run_dir)]
    command += ["--java-home", str(java.home), "--master", spark.master]
    command += [f"--conf={name}={value}" for name, value in spark.conf.items()]
    return command if archive is None else [*command, "--class-archive", str(archive)]
