"""Each function here breaks a rule of transactions in a broker. A simulation must see the invariant of it broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from squall.broker.apis import fetch
from squall.broker.coordinators.transactions.rules import TransactionRules
from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.log import recovery
from squall.broker.log.indexes import AbortedIndex
from squall.broker.log.producer_rules import ProducerRules
from squall.broker.log.producers import ProducerStates
from squall.broker.replicas.coordinators.marker_sender import MarkerJob
from squall.broker.replicas.coordinators.transaction_coordinator import TransactionCoordinator
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.simulation import simulate

pytestmark = pytest.mark.gate

STOPS = [{"at_s": 2.0 * node, "duration_s": 1.0, "action": "stop", "target": f"node:{node}"} for node in (1, 2, 3)]
"""Clean stops of each broker: after them, producer state is loaded from a snapshot."""
CRASHES = [
    {"at_s": 2.5, "duration_s": 7.0, "action": "client", "target": f"producer:{n}", "params": {"how": "crash"}}
    for n in (0, 1)
]
SEEDS = range(4)


def plan(seed: int, faults: list[dict[str, Any]]) -> Plan:
    load = {"name": "transactions", "rate": 6, "producers": 2, "partitions": 2, "aborts": 0.4}
    load["transaction_timeout_ms"] = 1000
    settings = {
        "transaction.state.log.num.partitions": "1",
        "replica.lag.time.max.ms": "1500",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "300",
    }
    values = {"seed": seed, "runtime": "sim", "time_s": 10, "warmup_s": 1, "workload": load, "faults": faults}
    return make_plan({**values, "cluster": {"settings": settings}})


def no_marker_is_repeated(*_: Any) -> bool:
    return False


def markers_are_sent_twice(job: MarkerJob, partitions: list[Any], rule: Callable[..., Any]) -> Any:
    """Name each partition twice in a marker request, as if an answer had been lost."""
    return rule(job, [*partitions, *partitions])


def nothing_is_undecided(*_: Any) -> bool:
    return False


def at_half_its_timeout(rule: Callable[..., bool]) -> Callable[..., bool]:
    """Abort a transaction that has been open for more than half of its time-out."""

    def is_timed_out(self: TransactionRules, transaction: Any, now_ms: int) -> bool:
        return rule(self, replace(transaction, timeout_ms=transaction.timeout_ms // 2), now_ms)

    return is_timed_out


def no_entry(*_: Any) -> None:
    """Keep the index of aborted transactions empty."""


def no_snapshot_and_no_batches(*_: Any, **__: Any) -> ProducerStates:
    return ProducerStates()


def before_it_is_committed(self: TransactionCoordinator, shard: Any, transaction: Any, offset: int) -> None:
    self._write_markers(shard, transaction)


def forgets_a_partition(self: MarkerJob, log: Any, transaction: Any, rule: Callable[..., Any]) -> None:
    rule(self, log, transaction)
    self.remaining = dict(list(self.remaining.items())[1:])


def every_third_is_lost(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Do not replay every third record of a transaction."""
    seen = 0

    def replay(self: TransactionCoordinatorShard, written: Any, offset: int) -> None:
        nonlocal seen
        seen += 1
        if seen % 3 or written.transactional_id not in self.transactions:
            rule(self, written, offset)

    return replay


def begins_anew(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Set the start time of a transaction anew in each of its records."""

    def decide(self: TransactionCoordinatorShard, request: Any, now_ms: int, *more: Any) -> Any:
        found = rule(self, request, now_ms, *more)
        return replace(found, records=tuple(_from_now_on(each, now_ms) for each in found.records))

    return decide


def _from_now_on(record: Any, now_ms: int) -> Any:
    transaction = record.transaction
    if transaction is None:
        return record
    return replace(record, transaction=replace(transaction, started_ms=now_ms))


def without_the_first(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Omit the first aborted transaction from fetch responses."""
    return lambda hosted, offset, records: rule(hosted, offset, records)[1:]


Broken = tuple[list[tuple[Any, str, Callable[[Any], Any]]], list[dict[str, Any]]]
"""The replaced methods, each as class, name and what makes the broken one; and the faults of the run."""
BROKEN: dict[str, Broken] = {
    "marker-once": (
        [
            (ProducerRules, "is_marker_repeated", lambda _: no_marker_is_repeated),
            (ProducerRules, "is_marker_late", lambda _: no_marker_is_repeated),
            (MarkerJob, "marker", lambda rule: lambda job, places: markers_are_sent_twice(job, places, rule)),
        ],
        [],
    ),
    "aborted-index-is-a-replay": ([(AbortedIndex, "add_aborted", lambda _: no_entry)], []),
    "producer-state-is-a-replay": ([(recovery.reads, "producers_at", lambda _: no_snapshot_and_no_batches)], STOPS),
    "stable-offset-is-a-replay": ([(ProducerRules, "is_undecided", lambda _: nothing_is_undecided)], []),
    "marker-is-decided": ([(TransactionCoordinator, "_when_decided", lambda _: before_it_is_committed)], []),
    "completed-is-marked": (
        [(MarkerJob, "__init__", lambda rule: lambda job, log, txn: forgets_a_partition(job, log, txn, rule))],
        [],
    ),
    "open-transaction-keeps-its-start": ([(TransactionCoordinatorShard, "decide", begins_anew)], []),
    "transaction-times-out": ([(TransactionRules, "is_timed_out", lambda _: nothing_is_undecided)], CRASHES),
    "aborted-after-its-timeout": ([(TransactionRules, "is_timed_out", at_half_its_timeout)], CRASHES),
    "aborted-are-listed": ([(fetch, "_aborted", without_the_first)], []),
    "coordinator-state-is-a-replay": ([(TransactionCoordinatorShard, "replay", every_third_is_lost)], []),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_transactions_is_seen_by_its_invariant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rules, faults = BROKEN[name]
    for owner, attribute, made in rules:
        monkeypatch.setattr(owner, attribute, made(getattr(owner, attribute)))
    found: set[str] = set()
    for seed in SEEDS:
        result = simulate(plan(seed, faults), stop_at_first=False)
        found |= {each.name for each in result.violations}
        if name in found:
            return
    raise AssertionError(f"{name} was not broken, but {sorted(found)}")
