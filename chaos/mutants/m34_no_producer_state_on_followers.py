"""Plants KAFKA-5435: followers do not keep the state of producers, so a new leader takes a retried batch for a new
batch.
"""

from __future__ import annotations

from squall.broker.log.log import Log
from squall.broker.log.producers import ProducerStates
from squall.broker.log.results import FollowerAppendResult
from squall.chaos.mutants.hunt_plans import hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

_SOUND = Log.append_as_follower


def append_as_follower(self: Log, records: memoryview, leader_epoch: int) -> FollowerAppendResult:
    """Append as usual, but forget what the batches say about their producers."""
    kept, self.producers = self.producers, ProducerStates()
    try:
        return _SOUND(self, records, leader_epoch)
    finally:
        self.producers = kept


def plan(seed: int) -> Plan:
    """Return a plan in which leaders die with responses in flight, and idempotent producers retry with the next leader.
    """
    return hunt_plan(seed, killings_behind(seed, "34"))


MUTANT = Mutant(
    id="34",
    name="no-producer-state-on-followers",
    title="forgets on followers which batches of a producer it has",
    source="KAFKA-5435",
    replaces=(ReplacedFunction(Log, "append_as_follower", append_as_follower),),
    expected=("appended-once", "producer-state-is-a-replay", "duplicate"),
    faults=("kill", "latency"),
    plan=plan,
)
