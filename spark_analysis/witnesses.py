"""Turns witnesses in Spark into findings: exact counts, the witnesses that each finding keeps as examples, and Parquet
files with all of them.

A history may show more witnesses than the driver can hold. If there are few, the driver fetches them all. If there are
many, Spark writes the files and counts the witnesses; the driver then fetches the examples. Spark orders witnesses by
operation, then by their other columns, and `squall.checkers.findings.places_kept` chooses indexes in that order.
"""

# Up to 50,000 witnesses come to the driver as they are: one job for an ordinary run. The driver's memory has a bound,
# and no count is an estimate. Rejected: four jobs always; a table of all witnesses in the driver.

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from squall.checkers.anomalies.check import SparkDriverSearch
from squall.checkers.findings import Finding, Witness, counted, findings_of, places_kept
from squall.checkers.leaderships import EVER
from squall.checkers.signs import RunCircumstances
from squall.spark_analysis.query import FOUND, SEARCHED, TEXTS, TooManyRows
from squall.spark_analysis.signs import bounds, signed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = 50_000
"""Limits how many witnesses the driver fetches directly, in one Spark job. A run with more of them needs four jobs."""
SCHEMA = pa.schema([(name, pa.string() if name in TEXTS else pa.int64()) for name in Witness._fields])
"""Holds the columns of the Parquet files."""

_COLUMNS = ", ".join(f"{name} {'string' if name in TEXTS else 'bigint'}" for name in Witness._fields)
_TYPED = ", ".join(name if name in TEXTS else f"bigint({name}) {name}" for name in FOUND)
_GROUP = "anomaly, evidence, proc, signs, part"
_COUNTS = f"select {_GROUP}, count(*) n from {{found}} group by {_GROUP}"
_KEPT = f"""
select {", ".join(Witness._fields)} from (
  select *, row_number() over (partition by {_GROUP} order by op, off, val, other) - 1 place from {{found}})
join {{places}} using ({_GROUP}, place)
"""


def search(spark: SparkSession, wanted: SparkDriverSearch) -> list[Witness]:
    """Return the witnesses that `wanted` finds. Raises TooManyRows if its statement has more rows than the driver can
    search.
    """
    table = spark.sql(wanted.sql).limit(SEARCHED + 1).toArrow()
    if table.num_rows > SEARCHED:
        raise TooManyRows(f"more than {SEARCHED:,} rows of {', '.join(wanted.views)} would have to be searched")
    return list(wanted.find(list(rows(table))))


def collect(
    spark: SparkSession,
    statement: str,
    circumstances: RunCircumstances,
    folder: Path,
    few: int = FEW,
    more: Sequence[Witness] = (),
) -> list[Finding]:
    """Return the findings: the witnesses that `statement` selects and those of `more`, counted by anomaly, evidence,
    process and signs. `circumstances` hold what may explain witnesses; each witness gets its signs from them.

    All witnesses are written to `folder`, which is emptied first, as Parquet. If there are more than `few`, the driver
    gets only their counts and the witnesses that findings keep as examples.
    """
    shutil.rmtree(folder, ignore_errors=True)
    found = spark.sql(f"select {_TYPED} from ({statement})")
    if more:
        columns = [[getattr(each, name) for each in more] for name in FOUND]
        schema = pa.schema([SCHEMA.field(name) for name in FOUND])
        found = found.unionByName(spark.createDataFrame(pa.table(columns, schema=schema)))
    typed = spark.sql(signed("{found}", _bounded(spark, circumstances)), found=found)
    taken = typed.limit(few + 1).toArrow()
    if taken.num_rows <= few:
        folder.mkdir()
        pq.write_table(taken.cast(SCHEMA), folder / "anomalies.parquet", compression="zstd")
        return findings_of(map(Witness._make, rows(taken)))
    place = folder.absolute().as_uri()
    typed.write.parquet(place, compression="zstd")
    # Read back: from `typed`, each of the next two jobs would find all witnesses again.
    written = spark.read.schema(_COLUMNS).parquet(place)
    counts = list(rows(spark.sql(_COUNTS, found=written).toArrow()))
    places = spark.createDataFrame(_places(counts))
    return counted(counts, map(Witness._make, rows(spark.sql(_KEPT, found=written, places=places).toArrow())))


def _places(counts: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Return a table that says which witnesses to keep. Each row identifies one witness by the columns of `_GROUP` and
    its index in that group (`place`). `counts` holds the rows of `_COUNTS`; `squall.checkers.findings.places_kept`
    chooses the indexes.
    """
    groups: dict[tuple[Any, ...], dict[int, int]] = {}
    for *group, part, count in counts:
        groups.setdefault(tuple(group), {})[part] = count
    kept = [(*group, *place) for group, parts in groups.items() for place in places_kept(parts)]
    names = [*_GROUP.split(", "), "place"]
    return pa.table(dict(zip(names, map(list, zip(*kept, strict=True)), strict=True)))


def _bounded(spark: SparkSession, circumstances: RunCircumstances) -> RunCircumstances:
    led = list(circumstances.leaderships.rows)
    # Without a later epoch there is nothing to bound, and a statement costs a few tenths of a second.
    if any(each.cut < EVER for each in led):
        for nth, kept_until, cut_since in rows(spark.sql(bounds(led)).toArrow()):
            led[nth] = led[nth]._replace(kept_until=kept_until, cut_since=cut_since)
    return replace(circumstances, leaderships=replace(circumstances.leaderships, rows=tuple(led)))


def rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Return an iterator over the rows of a table."""
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
