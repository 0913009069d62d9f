"""Implements the workload `steady`: one producer and one reader at a fixed low rate, to measure unavailability."""

from squall.workloads.steady.scenario import SteadyLoad

SCENARIO = SteadyLoad

__all__ = ["SCENARIO", "SteadyLoad"]
