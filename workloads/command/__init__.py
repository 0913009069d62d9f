"""Implements the workload `command`: a user's program sends, reads or both, and speaks lines of JSON with the harness.
"""

from squall.workloads.command.scenario import CommandLoad

SCENARIO = CommandLoad

__all__ = ["SCENARIO", "Command"]
