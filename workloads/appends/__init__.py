"""Implements the workload `appends`: producers append uniquely valued records to a few partitions, and readers follow.
"""

from squall.workloads.appends.scenario import AppendsLoad

SCENARIO = AppendsLoad

__all__ = ["SCENARIO", "AppendsLoad"]
