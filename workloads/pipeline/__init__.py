"""Implements the workload `pipeline`: an application reads records, writes an output for each, and commits its input
offsets in the same transactions.
"""

from squall.workloads.pipeline.scenario import PipelineLoad

SCENARIO = PipelineLoad

__all__ = ["SCENARIO", "PipelineLoad"]
