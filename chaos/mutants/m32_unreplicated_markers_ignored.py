"""Plants a bug against KIP-98: a transaction whose marker is not replicated yet does not hold back the last stable
offset, and the next leader lacks the marker.
"""

from __future__ import annotations

from squall.broker.log.producer_rules import EndedTxn, ProducerRules
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import txn, txn_plan
from squall.chaos.plans.plan import Plan


def is_undecided(self: ProducerRules, ended: EndedTxn, high_watermark: int) -> bool:
    """Return False: count a transaction as decided although its marker is not replicated yet."""
    return False


def plan(seed: int) -> Plan:
    """Return a plan in which markers come late, and reach a leader from which followers cannot fetch any more. Readers
    ask this leader for the last stable offset, then it dies. The next leader gets the markers late as well. This
    happens to each broker once.
    """
    rng = draw(seed, "32")
    faults, transactions = [], []
    for round_, number in enumerate(rng.sample((1, 2, 3), 3)):
        at_s, node = 0.3 + 6.0 * round_, f"node:{number}"
        late = {"act": "delay", "delay_ms": 1500, "count": 0, "side": "peers"}
        faults.append(fault(at_s, 5.0, "protocol", "all", api="WriteTxnMarkers", **late))
        faults.append(fault(at_s + 0.4, 2.4, "partition", node, side="replication", manner="drop"))
        faults.append(fault(at_s + rng.uniform(2.3, 2.6), 1.0, "kill", node))
        transactions.append(txn(at_s + 0.1, records=6, partitions=6))
    workload = {"partitions": 6, "readers": 8, "poll_pause_ms": 0, "transaction_timeout_ms": 10_000}
    settings = {"replica.lag.time.max.ms": "6000"}
    return txn_plan(seed, faults, transactions, settings=settings, workload=workload)


MUTANT = Mutant(
    id="32",
    name="unreplicated-markers-ignored",
    title="moves the last stable offset past a transaction whose marker is not replicated yet",
    source="Kafka, ProducerStateManager.unreplicatedTxns",
    replaces=(ReplacedFunction(ProducerRules, "is_undecided", is_undecided),),
    expected=("offset-regression",),
    faults=("protocol", "partition", "kill"),
    plan=plan,
    group=TRANSACTIONS,
)
