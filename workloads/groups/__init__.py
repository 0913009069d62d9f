"""The workload `groups`: members that share partitions, come, go, crash and stand still, while producers write."""

from squall.workloads.groups.scenario import GroupsLoad

SCENARIO = GroupsLoad

__all__ = ["SCENARIO", "GroupsLoad"]
