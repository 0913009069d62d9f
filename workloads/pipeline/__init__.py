"""The workload `pipeline`: records are made of records, and where they came from is committed with them."""

from squall.workloads.pipeline.scenario import PipelineLoad

SCENARIO = PipelineLoad

__all__ = ["SCENARIO", "PipelineLoad"]
