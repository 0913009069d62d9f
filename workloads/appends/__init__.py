"""The workload `appends`: producers append uniquely valued records to a few partitions, readers follow."""

from squall.workloads.appends.scenario import Appends

SCENARIO = Appends

__all__ = ["SCENARIO", "Appends"]
