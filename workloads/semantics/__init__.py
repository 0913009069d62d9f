"""The workload `semantics`: one application at most once, at least once and exactly once, under the same faults."""

from squall.workloads.semantics.scenario import SemanticsLoad

SCENARIO = SemanticsLoad

__all__ = ["SCENARIO", "SemanticsLoad"]
