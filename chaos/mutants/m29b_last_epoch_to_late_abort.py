"""Plants KAFKA-20090 in another way. When a transaction times out, the coordinator fences its producer with the highest
epoch, 32,767. Then the client sends a late abort, and the response gives this epoch to the client.

Squall's swarm (its random plans) found this. Epochs begin at 32,766 here, so that the first fence uses up the highest
epoch.
"""

from __future__ import annotations

from squall.broker.coordinators.transactions.rules import TransactionRules
from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import MAX_EPOCH, EndTransaction, TransactionMetadata, TxnState
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import ABORT, txn, txn_plan
from squall.chaos.plans.plan import Plan


def first_epoch(self: TransactionCoordinatorShard) -> int:
    """Return 32,766, the highest epoch that a client may have, as the first epoch of a new transactional id. The first
    fence then uses up 32,767.
    """
    return MAX_EPOCH - 1


def may_end(self: TransactionCoordinatorShard, transaction: TransactionMetadata, request: EndTransaction) -> bool:
    """Return whether the epoch of an EndTxn is valid. Unlike the correct function, accept an EndTxn even after a fence
    has raised the transaction to epoch 32,767, the highest. So a client's abort after the time-out counts as a retry.
    """
    retry, state = self.is_retry_of_end(transaction, request), transaction.state
    if state in (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT):
        return retry or request.epoch == transaction.epoch
    return request.epoch == transaction.epoch


def is_last_epoch(self: TransactionCoordinatorShard, epoch: int) -> bool:
    """Return False: a client may get any epoch, even 32,767, which a correct coordinator gives to no client."""
    return False


def plan(seed: int) -> Plan:
    """Return a plan in which the first transaction stays open until it times out; then its client aborts it, and begins
    another.
    """
    rng = draw(seed, "29b")
    late = txn(0.1, pause_ms=rng.randint(1800, 2400), pause_at=2, end=ABORT)
    after = [txn(0.3 + 0.2 * number, records=rng.randint(1, 3)) for number in range(4)]
    return txn_plan(seed, [], [late, *after], time_s=4.0, workload={"transaction_timeout_ms": 1000})


MUTANT = Mutant(
    id="29b",
    name="last-epoch-to-late-abort",
    title="takes a late abort for a retry of its time-out, and gives the client the last epoch",
    source="KAFKA-20090",
    replaces=(
        ReplacedFunction(TransactionRules, "first_epoch", first_epoch),
        ReplacedFunction(TransactionRules, "is_last_epoch", is_last_epoch),
        ReplacedFunction(TransactionRules, "may_end", may_end),
    ),
    expected=("stuck-producer", "stuck-consumer", "hanging-txn", "lost-txn", "torn-txn"),
    faults=(),
    plan=plan,
    group=TRANSACTIONS,
)
