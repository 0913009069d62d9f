"""Plants Redpanda PR 30003: a snapshot of producers' state leaves out producers with open transactions."""

from __future__ import annotations

from squall.broker.log.producers import ProducerStates
from squall.chaos.mutants.hunt_plans import REBALANCING, draw, fault
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series, txn, txn_plan
from squall.chaos.plans.plan import Plan

_SOUND = ProducerStates.encode


def encode(self: ProducerStates) -> bytes:
    """Encode only producers that are between two transactions."""
    kept = ProducerStates()
    kept.entries = {pid: entry for pid, entry in self.entries.items() if entry.txn_first_offset < 0}
    return _SOUND(kept)


def plan(seed: int) -> Plan:
    """Return a plan in which brokers stop and start while long transactions are open, and lead the same partitions
    again.
    """
    rng = draw(seed, "64")
    at_s, faults, transactions = 0.5, [], series(rng, 6.0, producers=1)
    for _ in range(4):
        node = rng.randint(1, 3)
        transactions.append(txn(at_s, producer=1, records=4, pause_ms=2500))
        faults.append(fault(at_s + 0.3, 0.5, "stop", f"node:{node}"))
        at_s += 2.7
    settings = {**REBALANCING, "transaction.max.timeout.ms": "10000"}
    load = {"producers": 2, "transaction_timeout_ms": 8000}
    return txn_plan(seed, faults, transactions, settings=settings, workload=load)


MUTANT = Mutant(
    id="64",
    name="open-transactions-left-out",
    title="leaves producers with open transactions out of the snapshots that it starts from",
    source="Redpanda PR 30003 (2026)",
    replaces=(ReplacedFunction(ProducerStates, "encode", encode),),
    expected=("dirty-read", "G1a", "hanging-txn", "lost-txn", "torn-txn", "offset-regression"),
    faults=("stop",),
    plan=plan,
    group=TRANSACTIONS,
)
