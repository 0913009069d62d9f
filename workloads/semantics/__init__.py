"""Implements the workload `semantics`: three applications under the same faults, with at-most-once, at-least-once and
exactly-once semantics.
"""

from squall.workloads.semantics.scenario import SemanticsLoad

SCENARIO = SemanticsLoad

__all__ = ["SCENARIO", "SemanticsLoad"]
