"""Makes the plans of a hunt for bugs of loads: few partitions, small tasks, and transactions and kills that are listed
one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from squall.chaos.mutants.hunt_plans import Values, fault
from squall.chaos.mutants.txn_plans import SMALL, txn_plan
from squall.chaos.plans.plan import Plan

LOADED: Mapping[str, Any] = {
    **SMALL,
    "name": "load",
    "readers": 1,
    "plain_rate": 0,
    "records_per_task": 4,
    "trigger_ms": 100,
}
"""Holds the settings of the load, at read_committed."""


def load_plan(
    seed: int,
    faults: Sequence[Values],
    transactions: Iterable[Sequence[Any]],
    **plan: Any,
) -> Plan:
    """Return a plan of a small cluster with these faults and transactions (each made by `txn_plans.txn`)."""
    return txn_plan(seed, faults, transactions, workload={**LOADED, **plan.pop("workload", {})}, **plan)


def load_kill(at_s: float, duration_s: float, moment: str, per_minute: int) -> Values:
    """Return a fault that kills the load at this moment of its batches, so many times a minute."""
    return fault(at_s, duration_s, "load_kill", "load", moment=moment, per_minute=per_minute)
