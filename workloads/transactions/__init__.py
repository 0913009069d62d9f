"""Implements the workload `transactions`: producers write to several partitions atomically, or abort."""

from squall.workloads.transactions.scenario import TransactionsLoad

SCENARIO = TransactionsLoad

__all__ = ["SCENARIO", "TransactionsLoad"]
