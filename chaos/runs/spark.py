"""Starts Spark for judging a run: its command, memory and Java."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from squall.chaos.runtimes.real.processes.child import TETHER
from squall.chaos.toolchain.extras import missing
from squall.chaos.toolchain.java import JavaRuntime
from squall.chaos.toolchain.lacks import MissingDependency
from squall.checkers.engines import REFERENCE, SPARK


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Holds the user's options for Spark: master, settings and time limit."""

    master: str = "local[*]"
    """Names the cluster manager in Spark's words. local[*]: every core of this machine."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Maps Spark's own settings to values. They replace the values that Squall chooses for the size of the history."""
    limit_s: float = 3600
    """Limits how long Spark may take, in s."""


HERE = SparkOptions()


def spark_lacks() -> list[MissingDependency]:
    """Return the Python packages that Spark needs and that are not installed."""
    return [MissingDependency(f"{each}; --engine {REFERENCE} does without") for each in missing(SPARK)]


def command_of(run_dir: Path, java: JavaRuntime, archive: Path | None, spark: SparkOptions = HERE) -> list[str]:
    """Return the command that searches a run for anomalies. Spark ends if the harness is killed.

    archive: the JVM's class data sharing archive with Spark's classes, which shortens the start; None if there is none.
    """
    tether = (sys.executable, "-I", "-S", str(TETHER), str(os.getpid()))
    command = [*tether, sys.executable, "-P", "-m", "squall.spark_analysis", str(run_dir)]
    command += ["--java-home", str(java.home), "--master", spark.master]
    command += [f"--conf={name}={value}" for name, value in spark.conf.items()]
    return command if archive is None else [*command, "--class-archive", str(archive)]
