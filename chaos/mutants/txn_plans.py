"""Makes the plans of a hunt for bugs of transactions: few producers, two partitions, and transactions listed one by
one.

The coordinator's log has one partition: a fault that hits a node hits the only coordinator every third time. Time-outs
of transactions are short: a transaction that is left open is ended within the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from squall.chaos.mutants.hunt_plans import Values, hunt_plan
from squall.chaos.plans.plan import Plan

TOPIC = "transactions-0"
COMMIT, ABORT, LEAVE = "commit", "abort", "leave"
"""Name how a transaction ends. Leave: its client ends without EndTxn, and a successor takes over its transactional id.
"""
COORDINATOR = "coordinator:squall-0"
"""Is the target of faults that hit the transaction coordinator. There is only one: the coordinator of `squall-0`, the
first producer, also serves all other producers.
"""
COORDINATED: Mapping[str, str] = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
}
"""Holds settings for one coordinator, which often looks for transactions that have timed out."""
SMALL: Mapping[str, Any] = {
    "name": "transactions",
    "partitions": 2,
    "replication_factor": 3,
    "min_isr": 2,
    "producers": 1,
    "readers": 2,
    "request_timeout_ms": 800,
    "delivery_timeout_ms": 6000,
    "transaction_timeout_ms": 3000,
}
"""Holds the settings of the load, with a reader at each isolation level."""


def txn_plan(
    seed: int,
    faults: Sequence[Values],
    transactions: Iterable[Sequence[Any]],
    *,
    settings: Mapping[str, str] | None = None,
    workload: Values | None = None,
    **plan: Any,
) -> Plan:
    """Return a plan of a small cluster with these faults and these transactions, each made by `txn`. settings: settings
    of the brokers, added to COORDINATED; workload: settings of the load, added to SMALL; plan: further values of the
    plan, such as `time_s`.
    """
    table = {**SMALL, **(workload or {})}
    operations = sorted(list(each) for each in transactions)
    return hunt_plan(
        seed,
        faults,
        settings={**COORDINATED, **(settings or {})},
        bare=True,
        workload=table,
        operations=operations,
        **plan,
    )


def txn(
    at_s: float,
    *,
    producer: int = 0,
    records: int = 2,
    partition: int = 0,
    partitions: int = 2,
    pause_ms: int = 0,
    pause_at: int | None = None,
    end: str = COMMIT,
) -> list[Any]:
    """Return one transaction as an operation of the workload. It sends `records` records to `partitions` partitions in
    turn, the first one to `partition`. Its pause comes after half of the records, or after `pause_at` of them.
    """
    steps = [f"send {(partition + number) % partitions}" for number in range(records)]
    if pause_ms:
        steps.insert((records + 1) // 2 if pause_at is None else pause_at, f"pause {pause_ms}")
    return [round(at_s, 3), producer, ", ".join(steps), 100, end]


def series(
    rng: Random,
    until_s: float,
    *,
    producers: int = 1,
    every_s: float = 0.15,
    aborts: float = 0.4,
    pauses_ms: Sequence[int] = (0, 0, 40, 120),
) -> list[Any]:
    """Return transactions of each producer until `until_s`, one about every `every_s` seconds. aborts: the share of
    aborted ones, 0 to 1; pauses_ms: the pauses from which each transaction draws one.
    """
    found = []
    for producer in range(producers):
        at_s = 0.1
        while at_s < until_s:
            end = ABORT if rng.random() < aborts else COMMIT
            pause_ms, records, partition = rng.choice(pauses_ms), rng.randint(1, 4), rng.randrange(2)
            one = txn(at_s, producer=producer, records=records, partition=partition, pause_ms=pause_ms, end=end)
            found.append(one)
            at_s += every_s * rng.uniform(0.5, 1.5)
    return found
