"""From a run directory to findings and metrics.

`analyse` converts `RUN/history.jsonl` (`checkers.history`), reads the tables, and writes

- `anomalies/anomalies.parquet`: every witness, one row each;
- `findings.json`: how many there are of each kind, and the first ones;
- `metrics.json` and `series.json`: see `checkers.metrics`.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from checkers import history, metrics
from checkers.findings import Finding, Witness, findings_of, to_json
from checkers.history import Conversion
from checkers.metrics import Context, Limits, Measure
from checkers.parquet import SCHEMAS
from checkers.parser import FILE
from checkers.plan_facts import BadPlan, read_plan
from spark_analysis import measures, queries, session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FINDINGS, METRICS, SERIES, ANOMALIES = "findings.json", "metrics.json", "series.json", "anomalies"
SCHEMA = 1
BYTES_A_RECORD = 50
"""Of history.jsonl, roughly: to choose the session's size before anything was read."""

_VIEWS = ("records", "told", "partitions", "processes", "faults")
_SQL_TYPES = {"int8": "tinyint", "int32": "int", "int64": "bigint", "string": "string", "bool": "boolean"}


@dataclass(frozen=True, slots=True)
class Analysis:
    """What Spark found in one run."""

    findings: list[Finding]
    metrics: dict[str, Any]
    series: dict[str, Any]


def analyse(
    run_dir: Path,
    *,
    out: Path | None = None,
    master: str = "local[*]",
    class_archive: str | None = None,
    limits: Limits | None = None,
    spark: SparkSession | None = None,
) -> Analysis:
    """Analyse a run and write what was found into `out` (`run_dir` where None).

    Converts the history first, while the JVM starts. `limits`: the plan's where None, if there is a plan. A given
    `spark` is used and left running.
    Raises what the converter raises on files that are not there, and what Spark raises; findings.json is removed
    first, so one that exists is whole and belongs to this history.
    """
    out = out or run_dir
    for name in (FINDINGS, METRICS, SERIES):
        (out / name).unlink(missing_ok=True)
    own = spark is None
    file = run_dir / FILE
    rows = file.stat().st_size // BYTES_A_RECORD if file.exists() else 0
    with ThreadPoolExecutor(1) as threads:
        starting = threads.submit(lambda: spark or session.start(rows, master, class_archive))
        try:
            conversion = history.convert(run_dir)
        finally:
            running = starting.result()
    try:
        return _analyse(running, run_dir, out, conversion, limits or limits_of(run_dir))
    finally:
        if own:
            running.stop()


def run_queries(
    spark: SparkSession, folder: Path, conversion: Conversion, context: Context
) -> tuple[pa.Table, pa.Table]:
    """(witnesses, measures) of the converted history in `folder`."""
    for name in _VIEWS:
        # With the columns given, no job is started to learn them.
        columns = ", ".join(f"{column.name} {_SQL_TYPES[str(column.type)]}" for column in SCHEMAS[name])
        spark.read.schema(columns).parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)
    cached = []
    try:
        for name, query in (("places", queries.PLACES), ("standing", queries.STANDING)):
            frame = spark.sql(query)
            # All that follows groups or sorts by partition: one exchange serves it all.
            frame = (frame.repartition("part") if name == "places" else frame).cache()
            frame.createOrReplaceTempView(name)
            cached.append(frame)
        statements = (
            queries.anomalies(corrupt=conversion.corrupt > 0, compacted=conversion.compacted),
            measures.measures(context),
        )
        # Planning is one thread's work: two statements at a time keep two cores busy.
        with ThreadPoolExecutor(len(statements)) as threads:
            witnesses, measured = threads.map(lambda statement: spark.sql(statement).toArrow(), statements)
        return witnesses, measured
    finally:
        for frame in cached:
            frame.unpersist()


def limits_of(run_dir: Path) -> Limits:
    """The plan's limits; none where there is no plan that can be read, which the verdict then says."""
    try:
        return read_plan(run_dir).limits
    except BadPlan:
        return Limits()


def _analyse(spark: SparkSession, run_dir: Path, out: Path, conversion: Conversion, limits: Limits) -> Analysis:
    folder = run_dir / history.FOLDER
    context = history.context_of(*history.load(run_dir, large=False))
    witnesses, measured = run_queries(spark, folder, conversion, context)
    (out / ANOMALIES).mkdir(exist_ok=True)
    pq.write_table(witnesses, out / ANOMALIES / "anomalies.parquet", compression="zstd")
    taken = measures_of(measured)
    findings = findings_of(witnesses_of(witnesses)) + metrics.liveness(taken, limits)
    analysis = Analysis(findings, metrics.shape(taken, context), metrics.series(taken, context))
    (out / METRICS).write_text(json.dumps(analysis.metrics, indent=1) + "\n")
    (out / SERIES).write_text(json.dumps(analysis.series) + "\n")
    stored = {"schema": SCHEMA, "run": conversion.run, "findings": to_json(findings)}
    (out / FINDINGS).write_text(json.dumps(stored, indent=1) + "\n")
    return analysis


def witnesses_of(table: pa.Table) -> list[Witness]:
    """The rows of the anomalies statement."""
    columns = (table[name].to_pylist() for name in Witness._fields)
    return list(map(Witness._make, zip(*columns, strict=True)))


def measures_of(table: pa.Table) -> list[Measure]:
    """The rows of the measures statement."""
    names, a, b, numbers = (table[name].to_pylist() for name in Measure._fields)
    return [Measure(name, one, two, tuple(each)) for name, one, two, each in zip(names, a, b, numbers, strict=True)]
