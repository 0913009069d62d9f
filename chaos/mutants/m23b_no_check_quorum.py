"""Plants KAFKA-15489: a metadata leader still leads although a majority of the voters no longer fetches from it."""

from __future__ import annotations

from squall.broker.quorum.raft import Raft
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def _check_quorum(self: Raft, now_ms: int) -> None:
    """Schedule the next check, and check nothing."""
    self.member.deadline_ms = now_ms + self._timers.for_majority()


def plan(seed: int) -> Plan:
    """Return a plan that cuts controllers off, in one direction or both, for much longer than their time-outs."""
    rng = draw(seed, "23b")
    at_s, faults = 0.5, []
    for _ in range(2):
        length_s = rng.uniform(3.0, 5.0)
        shape, manner = rng.choice(("isolate", "one-way")), rng.choice(("hold", "drop"))
        faults.append(fault(at_s, length_s, "partition", "controller", shape=shape, manner=manner))
        at_s += length_s + 2.0
    return hunt_plan(seed, faults, workload={"rate": 50})


MUTANT = Mutant(
    id="23b",
    name="no-check-quorum",
    title="leads the metadata quorum on when a majority no longer fetches",
    source="KAFKA-15489",
    replaces=(ReplacedFunction(Raft, "_check_quorum", _check_quorum),),
    expected=("metadata-leader-is-followed",),
    unseen="such a leader commits nothing: what clients are told is late, and never wrong",
    faults=("partition",),
    plan=plan,
)
