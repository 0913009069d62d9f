"""The workload `command`: a program of somebody's own sends, reads or both, spoken with by lines of JSON."""

from squall.workloads.command.scenario import CommandLoad

SCENARIO = CommandLoad

__all__ = ["SCENARIO", "Command"]
