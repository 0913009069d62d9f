"""Implements the workload `groups`: members of one group join, leave, crash and pause, while producers write."""

from squall.workloads.groups.scenario import GroupsLoad

SCENARIO = GroupsLoad

__all__ = ["SCENARIO", "GroupsLoad"]
