"""Reads topics with the data source `squall` and with Spark's own Kafka source, and compares the rows.

    python -m tests.support.load.comparing 127.0.0.1:9092 orders payments    # prints JSON, by isolation level
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from squall.chaos.toolchain.class_archive import class_archive_here
from squall.chaos.toolchain.java import java
from squall.spark_analysis import session
from tests.support.load.kafka_source import kafka_source_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS, KAFKAS = "squall", "kafka"
ISOLATIONS = ("read_uncommitted", "read_committed")
PLACE = ("topic", "partition", "offset")
SHOWN = 5
"""Limits the different rows that are named."""


def two_sources(rows: int = 0) -> SparkSession:
    """Start a Spark that has both sources, for so many rows. It needs a JVM of its own, because these jars are given at
    its start.
    """
    jars = ",".join(map(str, kafka_source_jars(_say)))
    there = java(_say)
    spark = session.start(rows, there.home, "local[2]", class_archive_here(there), conf={"spark.jars": jars})
    from squall.spark import SquallDataSource

    spark.dataSource.register(SquallDataSource)
    return spark


def topic_rows(spark: SparkSession, source: str, bootstrap: str, topics: Sequence[str], isolation: str) -> DataFrame:
    """Return the rows of topics as one source reads them."""
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": ",".join(topics),
        "kafka.isolation.level": isolation,
        "includeHeaders": "true",
    }
    return spark.read.format(source).options(**options).load()


def compared(spark: SparkSession, bootstrap: str, topics: Sequence[str], isolation: str) -> dict[str, Any]:
    """Return the number of rows of both sources, of different rows, and the places of some of these."""
    from pyspark.sql import functions as f

    ours = topic_rows(spark, OURS, bootstrap, topics, isolation).alias("ours")
    kafkas = topic_rows(spark, KAFKAS, bootstrap, topics, isolation).alias("kafkas")
    if ours.schema != kafkas.schema:
        return {"different": -1, "schemas": [ours.schema.simpleString(), kafkas.schema.simpleString()]}
    same_place = [f.col(f"ours.{name}") == f.col(f"kafkas.{name}") for name in PLACE]
    same_row = f.col("ours.offset").isNotNull() & f.col("kafkas.offset").isNotNull()
    for name in ours.columns:
        same_row &= f.col(f"ours.{name}").eqNullSafe(f.col(f"kafkas.{name}"))
    place = f.concat_ws("-", *(f.coalesce(f"ours.{name}", f"kafkas.{name}") for name in PLACE))
    (found,) = (
        ours.join(kafkas, same_place, "full_outer")
        .select("ours.offset", f.col("kafkas.offset").alias("theirs"), same_row.alias("same"), place.alias("place"))
        .agg(
            f.count("offset").alias("ours"),
            f.count("theirs").alias("kafkas"),
            f.count_if(~f.col("same")).alias("different"),
            f.array_sort(f.collect_list(f.when(~f.col("same"), f.col("place")))).alias("places"),
        )
        .collect()
    )
    return {**found.asDict(), "places": found["places"][:SHOWN]}


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    spark = two_sources()
    found = {level: compared(spark, sys.argv[1], sys.argv[2:], level) for level in ISOLATIONS}
    sys.stdout.write(f"{json.dumps(found)}\n")
    spark.stop()
