"""Implements `squall verify`, which judges a run directory again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from squall.chaos.commands import completions
from squall.chaos.commands.engines import engine_flag
from squall.chaos.errors import PreconditionError
from squall.chaos.runs.spark import HERE, SparkOptions, spark_lacks
from squall.chaos.screen import console
from squall.chaos.toolchain.lacks import refuse

SETTINGS = {
    "executor_memory": "spark.executor.memory",
    "executor_cores": "spark.executor.cores",
    "cores": "spark.cores.max",
    "driver_memory": "spark.driver.memory",
}
"""Maps a flag to Spark's setting."""


@click.command(
    epilog="""\b
Examples:
  squall verify runs/latest
  squall verify runs/latest --expect safe
  squall verify runs/latest --engine reference
  squall verify /shared/night --master spark://host:7077 --executor-memory 8g

\b
Exit codes: 0 valid, 1 an anomaly that the configuration does not permit,
2 unknown, 3 usage, 130 interrupted: the earlier verdict stays."""
)
@click.argument("run", type=click.Path(path_type=Path), shell_complete=completions.runs)
@click.option(
    "--expect",
    type=click.Choice(["config", "safe", "loss"]),
    help="What the verdict asks for, instead of what the plan says.",
)
@engine_flag
@click.option(
    "--master", default=HERE.master, show_default=True, metavar="URL", help="Where Spark runs, in Spark's words."
)
@click.option("--executor-memory", metavar="SIZE", help="Heap of each executor, e.g. 8g. [default: Spark's, 1g]")
@click.option("--executor-cores", type=click.IntRange(min=1), help="Cores of each executor. [default: Spark's]")
@click.option("--cores", type=click.IntRange(min=1), help="Cores of all executors together. [default: Spark's]")
@click.option("--driver-memory", metavar="SIZE", help="Heap of Spark's driver, which runs here. [default: 2g or 8g]")
@click.option("--spark-set", multiple=True, metavar="NAME=VALUE", help="Any setting of Spark; may be repeated.")
@click.option(
    "--limit",
    default=HERE.limit_s,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Seconds that Spark may take.",
)
def command(run: Path, expect: str | None, engine: str, **flags: Any) -> int:
    """Judge a recorded run again, even if its harness was killed during the run.

    With --master, the executors of a Spark cluster do the work. They must see RUN's folder under the same path.
    """
    from squall.chaos.commands.conclusion import conclude, interrupted, load_report
    from squall.chaos.runs.directory import RunDirectory
    from squall.chaos.runs.judgement import judge
    from squall.chaos.runs.progress import Progress
    from squall.checkers.engines import SPARK, too_large
    from squall.checkers.history import seal

    spark: SparkOptions | None = spark_of(flags)
    if engine != SPARK and spark != HERE:
        raise click.UsageError(f"--engine {engine}: it ignores the options of Spark: leave them out")
    directory = RunDirectory.open(run)
    if engine != SPARK:
        if refused := too_large(directory.history):
            raise PreconditionError(refused)
        spark = None
    else:
        refuse("squall verify", spark_lacks())
    say = console(stderr=True)
    progress = Progress(f"squall verify  {directory.run_id}", say, then=("judge", "report"))
    before = seal.stamp(directory.verdict)
    try:
        with progress.shown():
            judge(directory, say, expect=expect, spark=spark, phase=progress.phase, beside=load_report)
    except KeyboardInterrupt:
        return interrupted(directory, before)
    return conclude(directory, keep_data=True, progress=progress)


def spark_of(flags: Mapping[str, Any]) -> SparkOptions:
    """Return where and how Spark runs, according to the flags. Raise click.UsageError for a --spark-set that is not
    NAME=VALUE.
    """
    conf = {name: str(flags[flag]) for flag, name in SETTINGS.items() if flags.get(flag) is not None}
    for setting in flags["spark_set"]:
        name, equals, value = setting.partition("=")
        if not name or not equals:
            raise click.UsageError(f"--spark-set {setting}: it is NAME=VALUE")
        conf[name] = value
    return SparkOptions(flags["master"], conf, flags["limit"])
