"""The workload `transactions`: producers that write to several partitions atomically, or take it all back."""

from squall.workloads.transactions.scenario import TransactionsLoad

SCENARIO = TransactionsLoad

__all__ = ["SCENARIO", "TransactionsLoad"]
