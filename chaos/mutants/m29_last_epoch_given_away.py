"""Plants KAFKA-20090: a client gets the last producer epoch, and its transaction can never be ended.

The last epoch is 32,767, and no plan has so many transactions. So the first epoch here is a few before the last one.
Kafka used up its epochs faster, because each fence raised the epoch twice (KAFKA-19367).
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
    """Return an epoch a few transactions before the last epoch."""
    return MAX_EPOCH - 6


def is_exhausted(self: TransactionCoordinatorShard, epoch: int) -> bool:
    """Return True only at the very last epoch. A correct coordinator keeps that epoch for fencing."""
    return epoch >= MAX_EPOCH  # Kafka reserves the last epoch: one below it, a new producer id is due


def epoch_of_end(self: TransactionCoordinatorShard, transaction: TransactionMetadata, client_version: int) -> int:
    """Return the next epoch for V2, or the last epoch if there is no next; for V1 the same epoch."""
    return min(transaction.epoch + 1, MAX_EPOCH) if client_version >= V2 else transaction.epoch


def is_last_epoch(self: TransactionCoordinatorShard, epoch: int) -> bool:
    """Return False: a client may get any epoch, even the last one."""
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
