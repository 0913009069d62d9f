"""The workload `steady`: one producer and one reader at a fixed low rate, to see for how long nothing succeeds."""

from squall.workloads.steady.scenario import Steady

SCENARIO = Steady

__all__ = ["SCENARIO", "Steady"]
