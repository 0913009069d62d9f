"""Presents the histories of all runs of a night as one history, so that the views and rules for a single run work for
all.

A partition of run R gets the id `R * PARTITIONS + part`, and an operation the id `R * OPERATIONS + op`. So whatever the
views group and join by partition, value or operation stays within its run.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from squall.checkers.history import conversion
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.parquet import SCHEMAS
from squall.checkers.history.seal import FILE as HISTORY
from squall.checkers.history.tables import ObservedPartition
from squall.checkers.metrics import MeasurementContext, context_of
from squall.checkers.nemesis_log import FOREVER, windows
from squall.spark_analysis import views
from squall.spark_analysis.jobs import SQL_TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 1 << 20
OPERATIONS = 1 << 40
AT_ONCE = 1000
"""Limits how many runs Spark reads as one history: the ids of their partitions must fit into an int."""
NAMES = ("records", "told", "partitions", "members", "txns")
_SHIFTED = {
    "part": f"int(run * {PARTITIONS} + part)",
    "op": f"run * {OPERATIONS} + op",
    "txn": f"run * {OPERATIONS} + txn",
}
"""Maps a column to the SQL that turns an id in one run into an id among all runs. -1, which means none, becomes the
number below the lowest id of its run. No partition or operation has that id, so nothing joins with it.
"""


@dataclass(frozen=True, slots=True)
class ConvertedRun:
    """Holds one run's history in memory without its large tables."""

    folder: Path
    converted: ConversionResult
    context: MeasurementContext


def converted_run(run_dir: Path) -> ConvertedRun:
    """Return the converted history of one run. The history is converted first if it has no tables yet, if the tables
    have another version's layout, or if a file was changed after the conversion.

    Raises FileNotFoundError if there is no history, and OSError or ValueError if it cannot be read.
    """
    # If two sessions convert the same history, one must wait: the other's files cannot be read half-written.
    directory = os.open(run_dir, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        return _converted_run(run_dir)
    finally:
        os.close(directory)


def _converted_run(run_dir: Path) -> ConvertedRun:
    folder = run_dir / conversion.FOLDER
    try:
        converted = conversion.read_conversion(run_dir)
        whole = all((folder / f"{name}.parquet").exists() for name in SCHEMAS)
        # Without history.jsonl nothing can be converted again, so its tables are used as they are.
        whole = whole and (not (run_dir / HISTORY).exists() or conversion.is_current(run_dir, converted))
    except (OSError, ValueError, TypeError, KeyError):
        whole = False
    if not whole:
        if not (run_dir / HISTORY).exists():
            raise FileNotFoundError("there is no history")
        converted = conversion.convert(run_dir)
    history, faults = conversion.load(run_dir, large=False)
    return ConvertedRun(folder, converted, context_of(history, faults))


def stage(runs: Sequence[ConvertedRun], folder: Path) -> None:
    """Create links to the tables of all runs, as Spark reads one table of many files: TABLE/run=N/part.parquet."""
    assert len(runs) <= AT_ONCE
    for number, run in enumerate(runs):
        for name in NAMES:
            place = folder / name / f"run={number}"
            place.mkdir(parents=True)
            # Links: copies of a night's tables would take their space once more.
            (place / "part.parquet").symlink_to((run.folder / f"{name}.parquet").absolute())


def register(spark: SparkSession, runs: Sequence[ConvertedRun], folder: Path) -> list[DataFrame]:
    """Create temporary views: of the tables staged in `folder`, of the shared view `judged` and all views that it
    reads, of the runs themselves (`runs`), and of their faults (`played`).

    Return the data frames that must be unpersisted afterwards.
    """
    for name in NAMES:
        _staged(spark, folder, name).createOrReplaceTempView(name)
    spark.createDataFrame(_runs(runs)).createOrReplaceTempView("runs")
    spark.createDataFrame(_played(runs)).createOrReplaceTempView("played")
    cached = []
    everywhere = [each for run in runs for each in run.context.partitions]
    for name in views.in_order(["judged"]):
        if name not in NAMES:
            table = _view(spark, name, everywhere)
            table.createOrReplaceTempView(name)
            cached += [table] if views.VIEWS[name].kept else []
    return cached


def together(runs: Sequence[ConvertedRun]) -> ConversionResult:
    """Return one conversion result for all runs. The rules of the queries need it to know whether some history has
    damaged records or compacted partitions.
    """
    one = runs[0].converted
    return ConversionResult(
        run="",
        wall_ms=one.wall_ms,
        mono_ns=one.mono_ns,
        lines=0,
        torn_bytes=0,
        records=sum(run.converted.records for run in runs),
        corrupt=sum(run.converted.corrupt for run in runs),
        holes=sum(run.converted.holes for run in runs),
        compacted=any(run.converted.compacted for run in runs),
        outcomes={f: {} for run in runs for f in run.converted.outcomes},
        names=[],
    )


def _staged(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    schema = SCHEMAS[name]
    columns = ", ".join(f"`{column.name}` {SQL_TYPES[str(column.type)]}" for column in schema)
    table = spark.read.schema(f"{columns}, run int").parquet(str(folder / name))
    chosen = [f"{_SHIFTED[each]} {each}" if each in _SHIFTED else f"`{each}`" for each in schema.names]
    return table.selectExpr(*chosen)


def _view(spark: SparkSession, name: str, everywhere: Sequence[ObservedPartition]) -> DataFrame:
    view = views.VIEWS[name]
    table = spark.sql(view.sql if isinstance(view.sql, str) else view.sql(everywhere))
    if view.by:
        table = table.repartition(view.by)
    return table.cache() if view.kept else table


_SPAN = pa.struct([("began", pa.int64()), ("ended", pa.int64())])
_RUNS = pa.schema([("run", pa.int64()), ("spans", pa.list_(_SPAN)), ("afterwards", pa.list_(pa.int64()))])
_PLAYED = pa.schema([(name, pa.int64()) for name in ("run", "id", "began", "ended", "whole_since")])


def _runs(runs: Sequence[ConvertedRun]) -> pa.Table:
    """Return, for each run, the times in which faults were active (`spans`), and the harness's own producers, which
    wrote after healing and do not count as load (`afterwards`).
    """
    rows = [
        {
            "run": number,
            "spans": [{"began": began, "ended": min(ended, FOREVER)} for began, ended in windows(run.context.faults)],
            "afterwards": list(run.context.afterwards),
        }
        for number, run in enumerate(runs)
    ]
    return pa.Table.from_pylist(rows, schema=_RUNS)


def _played(runs: Sequence[ConvertedRun]) -> pa.Table:
    rows = [
        {"run": number, "id": each.id, "began": each.began, "ended": each.ended, "whole_since": each.whole_since}
        for number, run in enumerate(runs)
        for each in run.context.faults
        if each.began >= 0
    ]
    return pa.Table.from_pylist(rows, schema=_PLAYED)
