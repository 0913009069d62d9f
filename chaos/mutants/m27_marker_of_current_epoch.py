"""Plants KAFKA-19446 (KIP-1228): a marker with the current epoch is accepted, though it was meant for the transaction
before.
"""

from __future__ import annotations

from squall.broker.log.producer_rules import ProducerRules, ProducerStateEntry
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import ABORT, COMMIT, txn, txn_plan
from squall.chaos.plans.plan import Plan


def is_marker_late(self: ProducerRules, entry: ProducerStateEntry, epoch: int, transaction_version: int) -> bool:
    """Return True only for a marker of an older epoch, in transactions V1 and V2. The correct rule for V2 also returns
    True for a marker of the current epoch.
    """
    return epoch < entry.epoch


def plan(seed: int) -> Plan:
    """Return a plan in which a coordinator gets no response to a marker that is late, and sends a second marker, which
    arrives first. When the late marker arrives, the next transaction of the producer is open.
    """
    rng = draw(seed, "27")
    faults, transactions = [], []
    for round_ in range(4):
        at_s = 0.4 + 3.0 * round_
        late = {"act": "delay", "delay_ms": rng.randint(1100, 1300), "count": 1, "side": "peers"}
        faults.append(fault(at_s, 2.0, "protocol", "all", api="WriteTxnMarkers", **late))
        first, second = rng.sample((COMMIT, ABORT), 2)
        transactions.append(txn(at_s + 0.1, producer=0, end=first))
        transactions.append(txn(at_s + 0.2, producer=0, records=4, pause_ms=1200, end=second))
    # Shorter than the delay of markers: the coordinator sends them again before the late ones arrive.
    settings = {"request.timeout.ms": "500"}
    return txn_plan(seed, faults, transactions, settings=settings)


MUTANT = Mutant(
    id="27",
    name="marker-of-current-epoch",
    title="takes a late marker of the transaction before for the end of the open one",
    source="KAFKA-19446, KIP-1228",
    replaces=(ReplacedFunction(ProducerRules, "is_marker_late", is_marker_late),),
    expected=("dirty-read", "G1a", "torn-txn", "lost-txn"),
    faults=("protocol",),
    plan=plan,
    group=TRANSACTIONS,
)
