"""Plants a breach of KIP-98: InitProducerId aborts the open transaction of a transactional id, but gives the new
producer the old producer's epoch. So the old producer is not fenced.
"""

from __future__ import annotations

from squall.broker.coordinators.transactions.rules import TransactionRules
from squall.broker.coordinators.transactions.values import InitProducer, TransactionMetadata, TxnState
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import txn, txn_plan
from squall.chaos.plans.plan import Plan

_SOUND = TransactionRules.bumped
UNVERIFIED = {
    "squall.bootstrap.features": "transaction.version=0",
    "transaction.partition.verification.enable": "false",
}
"""Holds the settings of a cluster from before KIP-890. In it, only the fencing of old epochs keeps a stopped producer
from writing on.
"""


def fenced_epoch(self: TransactionRules, transaction: TransactionMetadata) -> int:
    """Return the current epoch for the abort of an open transaction. The correct function returns a higher epoch, which
    fences the old producer.
    """
    return transaction.epoch


def bumped(self: TransactionRules, transaction: TransactionMetadata, request: InitProducer) -> tuple[int, int] | None:
    """Do what the correct function does, but keep the epoch for a new producer if the previous transaction was aborted.
    The correct function raises it. The result is the epoch, and the epoch before its latest bump, such as (8, 7); None:
    the producer is fenced.
    """
    if request.producer_id < 0 and transaction.state == TxnState.COMPLETE_ABORT:
        return transaction.epoch, transaction.last_epoch
    return _SOUND(self, transaction, request)


def plan(seed: int) -> Plan:
    """Return a plan in which a producer is stopped inside a transaction, and continues once a successor has taken over
    its transactional id. The successor first writes to another partition. Later it writes to the producer's partition,
    and its marker there also ends the producer's transaction.
    """
    rng = draw(seed, "90")
    times = [0.1 + 0.3 * n + rng.uniform(0.0, 0.1) for n in range(20)]
    transactions = [txn(at_s, records=1, partition=int(at_s < 4.5)) for at_s in times]
    stopped = fault(rng.uniform(0.8, 1.4), rng.uniform(0.8, 1.4), "zombie", "producer")
    return txn_plan(seed, [stopped], transactions, time_s=7.0, settings=UNVERIFIED, workload={"generation": 1})


MUTANT = Mutant(
    id="90",
    name="takeover-keeps-epoch",
    title="does not raise the epoch of a transactional id whose open transaction it aborts for a new producer",
    source="KIP-98: InitProducerId fences all earlier producers of its id",
    replaces=(
        ReplacedFunction(TransactionRules, "fenced_epoch", fenced_epoch),
        ReplacedFunction(TransactionRules, "bumped", bumped),
    ),
    expected=("zombie-write",),
    faults=("zombie",),
    plan=plan,
    group=TRANSACTIONS,
)
