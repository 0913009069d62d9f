"""Implements the data source `squall`: topics of Squall's brokers, or of Apache Kafka, as rows of a batch or a stream.

It is built on PySpark's Python Data Source API. The driver plans ranges of offsets (`planning`); each task reads one
range by our own client and gives Arrow record batches (`task`).
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from squall.spark_analysis.load.batch import TopicReader
from squall.spark_analysis.load.options import read_options
from squall.spark_analysis.load.rows import spark_schema
from squall.spark_analysis.load.stream import TopicStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class SquallDataSource(DataSource):  # type: ignore[misc]  # PySpark has no types
    """Offers topics as the format `squall`. Register it with `spark.dataSource.register(SquallDataSource)`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Keep the options: they are read when it is known whether a batch or a stream wants them."""
        super().__init__(options)
        self._given = {str(name): str(value) for name, value in dict(options).items()}

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "squall"

    def schema(self) -> str:
        """Return the columns: those of Spark's Kafka source, and those that options ask for."""
        of_columns = ("includeheaders", "extracolumns")
        shape = {name: value for name, value in self._given.items() if name.lower() in of_columns}
        options = read_options({**shape, "kafka.bootstrap.servers": "any:1", "subscribe": "any"}, streams=False)
        return spark_schema(options.columns, headers=options.headers)

    def reader(self, schema: StructType) -> TopicReader:
        """Return the reader of a batch."""
        return TopicReader(read_options(self._given, streams=False))

    def streamReader(self, schema: StructType) -> TopicStreamReader:
        """Return the reader of a stream."""
        return TopicStreamReader(read_options(self._given, streams=True))
