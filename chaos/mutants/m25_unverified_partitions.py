"""Plants KAFKA-14402: a record that arrives after the marker of its transaction opens a transaction that never ends.

In transactions V1 (before KIP-890) the marker leaves the producer's epoch unchanged. Since KIP-890 part 1, Kafka's
leaders ask the coordinator before they accept the record; the mutant does not.
"""

from __future__ import annotations

from squall.broker.log.producer_rules import ProducerRules, VerificationStateEntry
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import TOPIC, txn, txn_plan
from squall.chaos.plans.plan import Plan

_SOUND = ProducerRules.is_verified


def is_verified(self: ProducerRules, asked: VerificationStateEntry | None, epoch: int) -> bool:
    """Return True for clients of transactions V1, without asking the coordinator; decide correctly for clients of V2.
    """
    return asked is None or not asked.raises_epoch or _SOUND(self, asked, epoch)


def plan(seed: int) -> Plan:
    """Return a plan in which a record arrives so late that its client has given up, and has aborted the transaction."""
    rng = draw(seed, "25")
    faults, transactions = [], [txn(0.05)]  # so that each partition acknowledges a record first
    for round_ in range(2):
        at_s, place = 0.4 + 6.0 * round_, rng.randrange(2)
        late = {"act": "delay", "delay_ms": rng.randint(2600, 3000), "count": 0, "side": "clients"}
        faults.append(fault(at_s, 1.2, "protocol", f"leader:{TOPIC}-{place}", api="Produce", **late))
        transactions.append(txn(at_s + 0.1, partition=1 - place))
    workload = {"generation": 1, "request_timeout_ms": 800, "delivery_timeout_ms": 1500, "transaction_timeout_ms": 4000}
    return txn_plan(seed, faults, transactions, workload=workload)


MUTANT = Mutant(
    id="25",
    name="unverified-partitions",
    title="takes late records of a transaction that has ended, without asking its coordinator",
    source="KAFKA-14402, KIP-890 part 1",
    replaces=(ReplacedFunction(ProducerRules, "is_verified", is_verified),),
    expected=("hanging-txn", "stuck-consumer", "G1a"),
    faults=("protocol",),
    plan=plan,
    group=TRANSACTIONS,
)
