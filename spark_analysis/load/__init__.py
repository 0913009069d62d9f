"""Offers topics to Spark as a data source, and loads them into a folder: `spark.dataSource.register(SquallDataSource)`,
then `spark.read.format("squall")` or `spark.readStream.format("squall")` (docs/load.md).
"""

from squall.spark_analysis.load.source import SquallDataSource

__all__ = ["SquallDataSource"]
