"""Plants Redpanda #6018: a new coordinator does not know to which partitions an open transaction has written."""

from __future__ import annotations

from dataclasses import replace

from squall.broker.coordinators.transactions import records
from squall.broker.coordinators.transactions.values import TxnState
from squall.broker.protocol.records import Record
from squall.broker.replicas.coordinators.transaction_coordinator import HostedTransactionShard, TransactionCoordinator
from squall.chaos.mutants.hunt_plans import draw, killings
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series, txn_plan
from squall.chaos.plans.plan import Plan


def _replay(self: TransactionCoordinator, shard: HostedTransactionShard, record: Record) -> None:
    """Replay the record without the partitions of open transactions."""
    written = None if record.key is None else records.decode(record.key, record.value)
    if written is None:
        return
    found = written.transaction
    if found is not None and found.state == TxnState.ONGOING:
        written = replace(written, transaction=replace(found, partitions=()))
    shard.machine.replay(written, record.offset)


def plan(seed: int) -> Plan:
    """Return a plan in which transactions pause so long that their coordinators die in the middle of them."""
    rng = draw(seed, "49")
    kills = killings(rng, rounds=3)
    transactions = series(rng, kills[-1]["at_s"], producers=2, every_s=0.6, aborts=0.2, pauses_ms=(600, 900, 1200))
    return txn_plan(seed, kills, transactions, workload={"producers": 2, "transaction_timeout_ms": 6000})


MUTANT = Mutant(
    id="49",
    name="partitions-in-memory",
    title="forgets the partitions of open transactions when another coordinator takes over",
    source="Redpanda #6018",
    replaces=(ReplacedFunction(TransactionCoordinator, "_replay", _replay),),
    expected=("lost-txn", "torn-txn", "hanging-txn", "lost-write", "G1a"),
    faults=("kill",),
    plan=plan,
    group=TRANSACTIONS,
)
