"""Plants Redpanda PR 3616: a coordinator that is replaced refuses a commit that its successor then carries out."""

from __future__ import annotations

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.coordinators import coordinator_log
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import TRANSACTIONS, Mutant, ReplacedFunction
from squall.chaos.mutants.txn_plans import txn, txn_plan
from squall.chaos.plans.plan import Plan

_SOUND = coordinator_log.error_for_clients


def error_for_clients(error: int) -> ErrorCode:
    """Return INVALID_TXN_STATE, which means that the commit has failed, if this broker has lost its leadership.
    Translate other errors as the correct function does.
    """
    return ErrorCode.INVALID_TXN_STATE if error == ErrorCode.NOT_LEADER_OR_FOLLOWER else _SOUND(error)


def plan(seed: int) -> Plan:
    """Return a plan with three rounds. In each, a commit reaches the followers. Then a network partition drops all
    fetches of followers, so the coordinator does not learn that the commit is replicated. Meanwhile a broker shuts down
    in a controlled way: another one in each round, and in one of them the coordinator.
    """
    rng = draw(seed, "50")
    faults, transactions = [], []
    for round_, node in enumerate(rng.sample((1, 2, 3), 3)):
        at_s = 0.5 + 3.5 * round_
        cut_s = at_s + rng.uniform(0.3, 0.4)
        faults.append(fault(cut_s, 0.9, "partition", "all", side="replication", manner="drop"))
        faults.append(fault(cut_s + rng.uniform(0.12, 0.2), 0.8, "stop", f"node:{node}"))
        for producer in range(3):
            pause_ms = int((cut_s - at_s) * 1000) + rng.randint(20, 90)
            transactions.append(txn(at_s, producer=producer, pause_ms=pause_ms, pause_at=2))
    settings = {"replica.fetch.wait.max.ms": "500", "replica.lag.time.max.ms": "2000"}
    return txn_plan(seed, faults, transactions, settings=settings, workload={"producers": 3})


MUTANT = Mutant(
    id="50",
    name="commit-told-as-failed",
    title="refuses a commit that is in its log when it is replaced, and the next coordinator carries it out",
    source="Redpanda PR 3616",
    replaces=(ReplacedFunction(coordinator_log, "error_for_clients", error_for_clients),),
    expected=("G1a",),
    faults=("partition", "stop"),
    plan=plan,
    group=TRANSACTIONS,
)
