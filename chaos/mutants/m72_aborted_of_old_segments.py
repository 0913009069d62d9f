"""Plants Redpanda PR 23008: aborted transactions of a segment that was just closed cannot be found for a while."""

from __future__ import annotations

from squall.broker.log import reads
from squall.broker.log.indexes import AbortedTxn
from squall.broker.log.log import Log
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import series, txn_plan
from squall.chaos.plans.plan import Plan


def aborted_transactions(self: Log, offset: int, end_offset: int) -> list[AbortedTxn]:
    """Return the aborted transactions of the newest segment only."""
    return reads.aborted_transactions(self.segments[-1:], offset, end_offset)


def plan(seed: int) -> Plan:
    """Return a plan with segments so small that a few transactions fill a segment."""
    rng = draw(seed, "72")
    load = {"producers": 2, "topic_settings": {"segment.bytes": "2048"}}
    return txn_plan(seed, [], series(rng, 3.0, producers=2), workload=load, time_s=3.5)


MUTANT = Mutant(
    id="72",
    name="aborted-of-old-segments",
    title="leaves out the aborted transactions of all segments but the newest",
    source="Redpanda PR 23008 (2024)",
    replaces=(ReplacedFunction(Log, "aborted_transactions", aborted_transactions),),
    expected=("G1a",),
    faults=(),
    plan=plan,
    group=TRANSACTIONS,
)
