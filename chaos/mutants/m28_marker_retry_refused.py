"""Plants KAFKA-19999: a marker that is already in the log is refused when it is sent again, so the transaction never
completes.
"""

from __future__ import annotations

from squall.broker.log.markers import TxnMarker
from squall.broker.log.producer_rules import ProducerRules, ProducerStateEntry
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import COORDINATOR, txn, txn_plan
from squall.chaos.plans.plan import Plan


def is_marker_repeated(
    self: ProducerRules, entry: ProducerStateEntry, epoch: int, marker: TxnMarker, transaction_version: int
) -> bool:
    """Return False: treat a marker that is sent again as a new one. With transactions V2 it is then refused, because a
    new marker must have a newer epoch.
    """
    return False


def plan(seed: int) -> Plan:
    """Return a plan in which responses to markers are lost, so that the markers are sent again, while markers for one
    broker do not arrive at all.
    """
    rng = draw(seed, "28")
    faults, transactions = [], []
    for round_ in range(2):
        at_s = 0.4 + 4.0 * round_
        asked = {"api": "WriteTxnMarkers", "act": "drop", "count": 0, "side": "peers"}
        others = f"not {COORDINATOR}"
        faults.append(fault(at_s, rng.uniform(2.2, 2.6), "protocol", f"random {others}", **asked))
        faults.append(fault(at_s, rng.uniform(0.8, 1.1), "protocol", f"all {others}", stream="back", **asked))
        transactions.append(txn(at_s + rng.uniform(0.1, 0.3), records=3, partitions=3))
    workload = {"partitions": 3, "transaction_timeout_ms": 1500}
    # A marker whose response is lost is sent again after this time.
    return txn_plan(seed, faults, transactions, settings={"request.timeout.ms": "500"}, workload=workload)


MUTANT = Mutant(
    id="28",
    name="marker-retry-refused",
    title="refuses a marker that is in its log already, and the coordinator gives up",
    source="KAFKA-19999",
    replaces=(ReplacedFunction(ProducerRules, "is_marker_repeated", is_marker_repeated),),
    expected=("hanging-txn", "stuck-consumer", "lost-txn", "torn-txn"),
    faults=("protocol",),
    plan=plan,
    group=TRANSACTIONS,
)
