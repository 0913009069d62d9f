"""Plants Redpanda #3003 and #3039, found by Jepsen: the coordinator acts on records that are not replicated yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.coordinators.coordinator_log import CoordinatorLog
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import txn, txn_plan
from squall.chaos.plans.plan import Plan

if TYPE_CHECKING:
    from squall.broker.replicas.coordinators.coordinator_log import OnCommitted


def when_committed(self: CoordinatorLog, offset: int, call: OnCommitted) -> None:
    """Call `call` at once, when the record may be in the local log only. The correct function waits until the record is
    committed.
    """
    call(ErrorCode.NONE if self.is_ours() else ErrorCode.NOT_COORDINATOR)


def plan(seed: int) -> Plan:
    """Return a plan with three rounds. In each, transactions end while two brokers are paused, and the third broker
    dies before they continue. Each broker dies once, so the coordinator does, too.
    """
    rng = draw(seed, "37")
    faults, transactions = [], []
    for round_, node in enumerate(rng.sample((1, 2, 3), 3)):
        at_s = 0.5 + 4.0 * round_
        held_s = rng.uniform(0.3, 0.4)
        for other in (1, 2, 3):
            if other != node:
                faults.append(fault(at_s + held_s, 0.6, "pause", f"node:{other}"))
        faults.append(fault(at_s + held_s + 0.4, 1.0, "kill", f"node:{node}"))
        for producer in range(3):
            pause_ms = rng.randint(450, 650)
            transactions.append(txn(at_s, producer=producer, pause_ms=pause_ms, pause_at=2))
            transactions.append(txn(at_s + 2.5, producer=producer))
    return txn_plan(seed, faults, transactions, workload={"producers": 3})


MUTANT = Mutant(
    id="37",
    name="answers-before-commit",
    title="acknowledges the end of a transaction, and writes its markers, before the decision is replicated",
    source="Redpanda #3003, #3039, Jepsen 2022",
    replaces=(ReplacedFunction(CoordinatorLog, "when_committed", when_committed),),
    expected=("torn-txn", "lost-txn", "G1a", "hanging-txn"),
    faults=("kill", "pause"),
    plan=plan,
    group=TRANSACTIONS,
)
