"""Plants KoP #1283: readers of committed data get records of transactions that are still open."""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import COMMIT, txn_plan
from squall.chaos.plans.plan import Plan


def read_limit(self: Partition, isolation: int, first_unstable_offset: int | None) -> int:
    """Return the high watermark for every isolation level."""
    return self.high_watermark


def plan(seed: int) -> Plan:
    """Return a plan with pairs of transactions that run at the same time. Each of the two sends a record, polls twice,
    and commits.
    """
    rng = draw(seed, "89")
    pairs = []
    for round_ in range(5):
        at_s = 0.3 + 0.8 * round_
        for producer in range(2):
            steps = f"send {producer}, pause {rng.randint(80, 140)}, poll, poll, pause {rng.randint(80, 140)}"
            pairs.append([round(at_s + rng.uniform(0.0, 0.03), 3), producer, steps, 100, COMMIT])
    return txn_plan(seed, [], pairs, time_s=5.0, workload={"producers": 2, "isolation": "read_committed"})


MUTANT = Mutant(
    id="89",
    name="open-transactions-read",
    title="gives records of open transactions to readers of committed data",
    source="KoP #1283 (2022), PR 1856 (2023)",
    replaces=(ReplacedFunction(PartitionRules, "read_limit", read_limit),),
    expected=("G1c",),
    faults=(),
    plan=plan,
    group=TRANSACTIONS,
)
