"""Implements the workload `command`: a user's program produces, consumes or both. It talks to the harness in lines of
JSON.
"""

from squall.workloads.command.scenario import CommandLoad

SCENARIO = CommandLoad

__all__ = ["SCENARIO", "Command"]
