"""A batch of Spark reads what there is, which may be nothing."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from squall.spark_analysis.load.batch import TopicReader
from squall.spark_analysis.load.options import LoadOptions


def test_topics_without_records_give_no_rows() -> None:
    """PySpark asks for a partition of its own if the plan has none."""
    reader = TopicReader(LoadOptions(bootstrap=(("nowhere", 1),)))
    assert list(reader.read(InputPartition(None))) == []
