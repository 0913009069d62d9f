"""Plants KAFKA-9144: a producer's state expires some time after its last records, even if a marker has come since.

With the state, the leader forgets the epoch by which it would refuse a fenced producer. Since KIP-890 the leader also
asks the coordinator. The plan disables that (transaction.partition.verification.enable), as before Kafka 3.6.
"""

from __future__ import annotations

from squall.broker.log.indexes import AbortedTxn
from squall.broker.log.markers import TxnMarker
from squall.broker.log.producers import ProducerStates
from squall.broker.protocol.records import BatchHeader
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import TOPIC, txn, txn_plan
from squall.chaos.plans.plan import Plan

_SOUND = ProducerStates.ended


def ended(self: ProducerStates, header: BatchHeader, marker: TxnMarker) -> AbortedTxn | None:
    """Do what the correct function does, but do not set the producer's timestamp to that of the marker. So the
    producer's state expires as if no marker had come.
    """
    before = self.entries.get(header.producer_id)
    timestamp = -1 if before is None else before.timestamp
    aborted = _SOUND(self, header, marker)
    self.entries[header.producer_id].timestamp = timestamp
    return aborted


def plan(seed: int) -> Plan:
    """Return a plan in which a producer's record is so late that its transaction times out and is aborted first. So the
    abort marker reaches the partition before the record does. The producer's successor writes to this partition next.
    """
    rng = draw(seed, "33")
    faults, transactions = [], []
    for round_ in range(2):
        at_s, place = 0.4 + 7.0 * round_, rng.randrange(2)
        late = {"act": "delay", "delay_ms": rng.randint(2600, 3000), "count": 0, "side": "clients"}
        faults.append(fault(at_s, 1.2, "protocol", f"leader:{TOPIC}-{place}", api="Produce", **late))
        transactions.append(txn(at_s + 0.1, partition=1 - place))
        transactions.append(txn(at_s + 4.5, partition=place))
    settings = {
        "transaction.partition.verification.enable": "false",
        "producer.id.expiration.ms": "4000",
        "log.retention.check.interval.ms": "200",
    }
    workload = {"generation": 1, "request_timeout_ms": 800, "delivery_timeout_ms": 1500, "transaction_timeout_ms": 1000}
    return txn_plan(seed, faults, transactions, settings=settings, workload=workload, time_s=14.0)


MUTANT = Mutant(
    id="33",
    name="marker-age-ignored",
    title="forgets a producer by the age of its last records, and with it the epoch of a marker that came since",
    source="KAFKA-9144",
    replaces=(ReplacedFunction(ProducerStates, "ended", ended),),
    expected=("G1a", "hanging-txn", "stuck-consumer", "duplicate"),
    faults=("protocol",),
    plan=plan,
    group=TRANSACTIONS,
)
