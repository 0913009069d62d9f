"""Plants KAFKA-9666: the coordinator raises the epoch in memory to fence a producer, even if the record cannot be
written. Each attempt raises it again.

Once the epoch was 32,767, the highest one, Kafka's coordinator could not fence the producer any more, and its
transaction stayed open. Epochs begin shortly below the highest one here.
"""

from __future__ import annotations

from dataclasses import replace

from squall.broker.coordinators.transactions.rules import TransactionRules
from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import MAX_EPOCH, TransactionMetadata, TxnState
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import LEAVE, series, txn, txn_plan
from squall.chaos.plans.plan import Plan


def first_epoch(self: TransactionCoordinatorShard) -> int:
    """Return an epoch so near to the highest one, 32,767, that a dozen failed fences reach it."""
    return MAX_EPOCH - 12


def fenced_epoch(self: TransactionCoordinatorShard, transaction: TransactionMetadata) -> int:
    """Return the next epoch, and store it in memory even if the record of the fence is never written. Raise ValueError
    if the epoch is already 32,767, the highest one (Kafka raised IllegalStateException).
    """
    raised = transaction.epoch + 1
    if raised > MAX_EPOCH:
        raise ValueError(f"cannot fence {transaction.transactional_id}: its epoch would overflow")
    self.transactions[transaction.transactional_id] = replace(transaction, epoch=raised)
    return raised


def is_timed_out(self: TransactionCoordinatorShard, transaction: TransactionMetadata, now_ms: int) -> bool:
    """Do what the correct function does, but return False if the epoch is 32,767, the highest one: a fence would need a
    higher epoch, so the transaction stays open.
    """
    late = transaction.started_ms + transaction.timeout_ms < now_ms
    return transaction.state == TxnState.ONGOING and late and transaction.epoch < MAX_EPOCH


def plan(seed: int) -> Plan:
    """Return a plan in which a client leaves its transaction open, and the coordinator's log accepts no records: a
    replica is gone, and all three must be in sync. The coordinator tries to fence again and again.
    """
    rng = draw(seed, "59")
    open_s = rng.uniform(1.0, 1.4)
    down = fault(open_s + rng.uniform(0.1, 0.3), rng.uniform(6.0, 7.0), "kill", f"node:{rng.randint(1, 3)}")
    transactions = [
        *series(rng, 0.8, every_s=0.3),
        txn(open_s, producer=1, records=1, partition=rng.randrange(2), end=LEAVE, pause_ms=1500),
        txn(open_s + 1.0, producer=1, records=2),
    ]
    settings = {"transaction.state.log.min.isr": "3"}
    workload = {"producers": 2, "transaction_timeout_ms": 1000}
    return txn_plan(seed, [down], transactions, settings=settings, workload=workload)


MUTANT = Mutant(
    id="59",
    name="failed-fence-bumps",
    title="raises the epoch in memory for each fence that it tries to write",
    source="KAFKA-9666",
    replaces=(
        ReplacedFunction(TransactionRules, "first_epoch", first_epoch),
        ReplacedFunction(TransactionRules, "fenced_epoch", fenced_epoch),
        ReplacedFunction(TransactionRules, "is_timed_out", is_timed_out),
    ),
    expected=("hanging-txn", "stuck-consumer"),
    faults=("kill",),
    plan=plan,
    group=TRANSACTIONS,
)
