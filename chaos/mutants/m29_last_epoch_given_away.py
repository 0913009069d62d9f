"""Plants KAFKA-20090: a client gets the highest producer epoch, 32,767. The client's transaction in this epoch can
never be ended, because the markers would need a higher epoch.

No plan has so many transactions, so epochs here begin shortly below the highest one. Kafka used up its epochs faster,
because each fence raised the epoch twice (KAFKA-19367).
"""

from __future__ import annotations

from squall.broker.coordinators.transactions.rules import TransactionRules
from squall.broker.coordinators.transactions.shard import TransactionCoordinatorShard
from squall.broker.coordinators.transactions.values import MAX_EPOCH, V2, TransactionMetadata
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series, txn_plan
from squall.chaos.plans.plan import Plan


def first_epoch(self: TransactionCoordinatorShard) -> int:
    """Return an epoch shortly below the highest one, 32,767. A few transactions of V2 then use up the epochs."""
    return MAX_EPOCH - 6


def is_exhausted(self: TransactionCoordinatorShard, epoch: int) -> bool:
    """Return True only at 32,767, the highest epoch. The correct function already returns True at 32,766, so that the
    coordinator keeps the highest epoch for fencing.
    """
    return epoch >= MAX_EPOCH  # Kafka reserves the last epoch: one below it, a new producer id is due


def epoch_of_end(self: TransactionCoordinatorShard, transaction: TransactionMetadata, client_version: int) -> int:
    """Return the next epoch for V2, but at most 32,767, the highest one. For V1 return the current epoch."""
    return min(transaction.epoch + 1, MAX_EPOCH) if client_version >= V2 else transaction.epoch


def is_last_epoch(self: TransactionCoordinatorShard, epoch: int) -> bool:
    """Return False: a client may get any epoch, even 32,767, which a correct coordinator gives to no client."""
    return False


def plan(seed: int) -> Plan:
    """Return a plan with more transactions of V2 than there are epochs left."""
    rng = draw(seed, "29")
    return txn_plan(seed, [], series(rng, 2.5), time_s=3.0, workload={"transaction_timeout_ms": 1000})


MUTANT = Mutant(
    id="29",
    name="last-epoch-given-away",
    title="gives the last epoch of a producer id to a client",
    source="KAFKA-20090, KAFKA-19367",
    replaces=(
        ReplacedFunction(TransactionRules, "first_epoch", first_epoch),
        ReplacedFunction(TransactionRules, "is_last_epoch", is_last_epoch),
        ReplacedFunction(TransactionRules, "is_exhausted", is_exhausted),
        ReplacedFunction(TransactionRules, "epoch_of_end", epoch_of_end),
    ),
    expected=("hanging-txn", "stuck-consumer", "lost-txn", "torn-txn"),
    faults=(),
    plan=plan,
    group=TRANSACTIONS,
)
