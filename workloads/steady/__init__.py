"""The workload `steady`: one producer and one reader at a fixed low rate, to see for how long nothing succeeds."""

from squall.workloads.steady.scenario import SteadyLoad

SCENARIO = SteadyLoad

__all__ = ["SCENARIO", "SteadyLoad"]
