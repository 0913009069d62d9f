"""Plants KAFKA-17754: a late EndTxn of one transaction ends the next transaction, because both have the same epoch.

With transactions V1 this can happen by design; Kafka fixed it with V2 (KIP-890, part 2). The mutant treats clients of
V2 as if they used V1. A second mutant, 26b, changes no code: its clients use V1, and its plan claims that this is safe.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from squall.broker.coordinators.transactions import ending
from squall.broker.coordinators.transactions.rules import TransactionRules
from squall.broker.coordinators.transactions.values import (
    V1,
    V2,
    EndTransaction,
    TransactionMetadata,
    TxnCoordinatorResult,
)
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import ABORT, COMMIT, COORDINATOR, txn, txn_plan
from squall.chaos.plans.plan import Plan

_SOUND = ending.decide


def decide(
    rules: TransactionRules, found: TransactionMetadata, request: EndTransaction, now_ms: int, fresh_id: int
) -> TxnCoordinatorResult:
    """Decide an EndTxn as for transactions V1: a client of V2 keeps its epoch."""
    decision = _SOUND(rules, found, replace(request, client_version=V1), now_ms, fresh_id)
    if decision.answer.error or request.client_version < V2:
        return decision
    return replace(decision, answer=replace(decision.answer, producer_id=found.producer_id, epoch=found.epoch))


def plan(seed: int, mutant: str = "26", generation: int = 2, expect: str = "config") -> Plan:
    """Return a plan in which the first EndTxn is late, and its client retries over another connection. When the late
    request arrives, the next transaction is open: half of its records have been sent.

    mutant: the mutant's id, from which (with the seed) the times are drawn. generation: the clients' transaction
    version, 1 or 2. expect: "safe" if the plan counts every anomaly as a failure; "config": only those that the
    settings rule out.
    """
    rng = draw(seed, mutant)
    faults, transactions = [], []
    for round_ in range(3):
        at_s = 0.4 + 4.0 * round_
        late = {"act": "delay", "delay_ms": rng.randint(1300, 1600), "count": 1, "side": "clients"}
        faults.append(fault(at_s, 2.5, "protocol", COORDINATOR, api="EndTxn", **late))
        transactions.append(txn(at_s + 0.1))
        end, pause_ms = rng.choice((COMMIT, ABORT)), rng.randint(1500, 1800)
        transactions.append(txn(at_s + 0.2, records=4, pause_ms=pause_ms, end=end))
    return txn_plan(seed, faults, transactions, expect=expect, workload={"generation": generation})


MUTANT = Mutant(
    id="26",
    name="end-without-new-epoch",
    title="ends transactions of V2 without a new epoch, so that a late end is taken for that of the next transaction",
    source="KAFKA-17754, Jepsen 2024 (Bufstream)",
    replaces=(ReplacedFunction(ending, "decide", decide),),
    expected=("dirty-read", "G1a", "torn-txn", "lost-txn"),
    faults=("protocol",),
    plan=plan,
    group=TRANSACTIONS,
)
FIRST_GENERATION = Mutant(
    id="26b",
    name="transactions-v1",
    title="has clients of transactions V1, and is called safe",
    source="KAFKA-17754, KIP-890 part 2",
    replaces=(),
    expected=("dirty-read", "G1a", "torn-txn", "lost-txn"),
    faults=("protocol",),
    plan=partial(plan, mutant="26b", generation=1, expect="safe"),
    group=TRANSACTIONS,
)
