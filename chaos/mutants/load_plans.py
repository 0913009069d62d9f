"""Makes the plans of a hunt for bugs of loads: few partitions, small tasks, and transactions and kills that are listed
one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from squall.chaos.mutants.hunt_plans import Values
from squall.chaos.mutants.txn_plans import SMALL, txn_plan
from squall.chaos.plans.plan import Plan

LOADED: Mapping[str, Any] = {
    **SMALL,
    "name": "load",
    "readers": 1,
    "plain_rate": 0,
    "records_per_task": 4,
    "trigger_ms": 100,
    "kills": 0,
}
"""Holds the settings of the load, at read_committed."""


def load_plan(
    seed: int,
    faults: Sequence[Values],
    transactions: Iterable[Sequence[Any]],
    kills: Iterable[tuple[float, str]] = (),
    **plan: Any,
) -> Plan:
    """Return a plan of a small cluster with these faults, transactions (each made by `txn_plans.txn`) and kills (each a
    time in s, and a moment of the load).
    """
    deaths = [[round(at_s, 3), -2, moment, 0, "kill"] for at_s, moment in kills]
    workload = {**LOADED, **plan.pop("workload", {})}
    return txn_plan(seed, faults, [*transactions, *deaths], workload=workload, **plan)
