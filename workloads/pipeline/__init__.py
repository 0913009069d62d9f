"""Implements the workload `pipeline`: applications read records, write outputs, and commit the input offsets with them.
"""

from squall.workloads.pipeline.scenario import PipelineLoad

SCENARIO = PipelineLoad

__all__ = ["SCENARIO", "PipelineLoad"]
