"""Plants KAFKA-12671 and ydb PR 52731: the next transaction begins while markers of the one before are being written.
"""

from __future__ import annotations

from squall.broker.coordinators.transactions.rules import TransactionRules
from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import TransactionMetadata
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import ABORT, COMMIT, txn, txn_plan
from squall.chaos.plans.plan import Plan


def may_begin(self: TransactionCoordinatorShard, transaction: TransactionMetadata) -> bool:
    """Let the next transaction begin, whatever the state of the one before is."""
    return True


def _check(
    self: TransactionCoordinatorShard, before: TransactionMetadata | None, after: TransactionMetadata | None
) -> None:
    """Allow any state after any other."""


def plan(seed: int) -> Plan:
    """Return a plan in which one transaction follows right after the other, and markers come late."""
    rng = draw(seed, "60")
    late = {"act": "delay", "delay_ms": rng.randint(200, 400), "count": 0, "side": "peers"}
    faults = [fault(0.2, 4.0, "protocol", "all", api="WriteTxnMarkers", **late)]
    transactions = []
    for round_ in range(4):
        at_s = 0.4 + round_
        first, second = rng.sample((COMMIT, ABORT), 2)
        transactions.append(txn(at_s, records=2, end=first))
        transactions.append(txn(at_s + 0.01, records=4, pause_ms=rng.randint(300, 600), end=second))
    return txn_plan(seed, faults, transactions)


MUTANT = Mutant(
    id="60",
    name="next-begins-too-early",
    title="lets a transaction begin while markers of the one before are being written",
    source="KAFKA-12671, ydb PR 52731",
    replaces=(
        ReplacedFunction(TransactionRules, "may_begin", may_begin),
        ReplacedFunction(TransactionCoordinatorShard, "_check", _check),
    ),
    expected=("lost-txn", "torn-txn", "G1a", "dirty-read", "lost-write"),
    faults=("protocol",),
    plan=plan,
    group=TRANSACTIONS,
)
