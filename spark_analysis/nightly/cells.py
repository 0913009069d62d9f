"""Computes the durability table from the store, by one query for a night, a month or a configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squall.checkers.nightly.store import TABLES, CollectedNight

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
CELL = ("configuration", "classes", "target", "runtime")
"""Lists the columns that identify a row of the durability table."""

COUNTED = """
select * from stored_runs where counts{where}
"""

CELLS = f"""
select {", ".join(CELL)},
       count(*) tried, count_if(proven) runs, count_if(verdict = 'invalid') invalid,
       count_if(verdict = 'unknown' or verdict = 'no verdict') unknown,
       collect_set(promise) promises, array_distinct(flatten(collect_list(permitted))) permitted,
       collect_set(workload) workloads,
       sum(if(proven, acknowledged, 0)) acknowledged, sum(if(proven, lost, 0)) lost,
       sum(if(proven, lost_unacknowledged, 0)) lost_unacknowledged,
       count_if(proven and lost > 0) losing, sum(if(proven, duplicated, 0)) duplicated,
       sum(if(proven, lost_tails, 0)) lost_tails, max(if(proven, lost_tail_records, null)) lost_tail_records,
       max(if(proven, lost_tail_ms, null)) lost_tail_ms, sum(if(proven, leader_changes, null)) leader_changes,
       max(if(proven, unavailable_ms, null)) unavailable_ms, max(if(proven, recovery_ms, null)) recovery_ms,
       median(if(proven, recovery_ms, null)) recovery_median_ms, sum(if(proven, unrecovered, 0)) unrecovered,
       sort_array(collect_list(struct(night, item, attempt, run, verdict, lost, unavailable_ms))) behind
from (select *, measured and verdict in ('valid', 'invalid') proven from counted_runs)
group by {", ".join(CELL)} order by {", ".join(CELL)}
"""
"""Selects the rows of the durability table. Runs without a verdict count nowhere, because they may have ended before
they showed something.
"""

HISTOGRAMS = f"""
select {", ".join(CELL)}, faulty, bucket, sum(n) n
from stored_latencies join counted_runs using (night, item, attempt)
where measured and verdict in ('valid', 'invalid')
group by {", ".join(CELL)}, faulty, bucket
"""


def cells(spark: SparkSession, collected: Sequence[CollectedNight], where: Mapping[str, str]) -> list[Row]:
    """Return the rows of the durability table over these nights. The column `latency` maps "calm" and "faulty" to a
    histogram: bucket -> count.

    `where` selects runs: it maps axes of the nightly matrix, such as "acks", to values.
    """
    if not collected:
        return []
    for table in ("runs", "latencies"):
        _stored(spark, collected, table).createOrReplaceTempView(f"stored_{table}")
    conditions = "".join(f" and axes[{_text(axis)}] = {_text(value)}" for axis, value in where.items())
    spark.sql(COUNTED.format(where=conditions)).createOrReplaceTempView("counted_runs")
    found = spark.sql(CELLS).toArrow().to_pylist()
    histograms: dict[tuple[str, ...], dict[str, dict[int, int]]] = {}
    for row in spark.sql(HISTOGRAMS).toArrow().to_pylist():
        flag = "faulty" if row["faulty"] else "calm"
        key = tuple(row[name] for name in CELL)
        histograms.setdefault(key, {"calm": {}, "faulty": {}})[flag][row["bucket"]] = row["n"]
    empty: dict[str, dict[int, int]] = {"calm": {}, "faulty": {}}
    return [{**row, "latency": histograms.get(tuple(row[name] for name in CELL), empty)} for row in found]


def _stored(spark: SparkSession, collected: Sequence[CollectedNight], table: str) -> DataFrame:
    # Without the base path, Spark would take the folder's name for the column `night`.
    columns = ", ".join(f"`{column.name}` {_sql_type(column.type)}" for column in TABLES[table])
    return spark.read.schema(columns).parquet(*(str(each.file(table)) for each in collected))


_SQL = {"string": "string", "int64": "bigint", "double": "double", "bool": "boolean"}


def _sql_type(kind: pa.DataType) -> str:
    text = str(kind)
    if text.startswith("map<"):
        return "map<string, string>"
    return "array<string>" if text.startswith("list<") else _SQL[text]


def _text(value: str) -> str:
    """Return the value as an SQL literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def to_json(found: Sequence[Row]) -> str:
    """Return the rows as JSON, for a file that another process reads."""
    return json.dumps(found)


def from_json(text: str) -> list[Row]:
    """Decode the rows that `to_json` encoded."""
    found: list[Row] = json.loads(text)
    for row in found:
        row["latency"] = {
            flag: {int(bucket): n for bucket, n in histogram.items()} for flag, histogram in row["latency"].items()
        }
    return found
