"""Reads ranges of offsets for batch loads of a topic into an offline store, and implements the workload `load`, a model
of such loads. `squall.spark_analysis.load` makes a Spark data source of the reader.
"""

from squall.workloads.load.scenario import BatchLoad

SCENARIO = BatchLoad

__all__ = ["SCENARIO", "BatchLoad"]
