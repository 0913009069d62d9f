"""Plants the bug before KIP-320: a fetch does not carry its leader epoch, so a leader that was replaced still serves
fetches.

The mutant also removes a check that came years later (KAFKA-18723) and would hide this bug: a follower refuses a batch
whose epoch is above its leader's.
"""

from __future__ import annotations

from squall.broker.log.log import Log
from squall.broker.log.results import FollowerAppendResult
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants import client_visible_plans as seen
from squall.chaos.mutants.hunt_plans import REBALANCING, draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def check_leader_epoch(self: Partition, request_epoch: int) -> ErrorCode:
    """Accept the request whatever its epoch is, as long as this broker takes itself for the leader."""
    return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER


append_up_to = Log.append_as_follower
NEWEST = 2**31 - 1


def append_as_follower(self: Log, records: memoryview, leader_epoch: int) -> FollowerAppendResult:
    """Append the batches without comparing their epochs with the leader's."""
    return append_up_to(self, records, NEWEST)


def plan(seed: int) -> Plan:
    """Return a plan that pauses leaders, or cuts them off from the controller, while the other brokers continue; then
    the leaders come back.
    """
    rng = draw(seed, "3")
    at_s, faults = 0.3, []
    for _ in range(5):
        node = f"node:{rng.randint(1, 3)}"
        if rng.random() < 0.5:
            length_s = rng.uniform(0.7, 1.6)
            faults.append(fault(at_s, length_s, "pause", node))
        else:
            length_s = rng.uniform(1.6, 2.4)
            faults.append(fault(at_s, length_s, "partition", node, shape="one-way", manner="hold"))
        at_s += length_s + rng.uniform(0.3, 1.0)
    return hunt_plan(seed, faults, settings=REBALANCING, workload={"rate": 15})


def client_visible_plan(seed: int) -> Plan:
    """Return a plan in which leadership moves from replica FIRST to SECOND and back to FIRST, in three leader epochs.
    The follower THIRD learns of each change late.

    In the third epoch THIRD still fetches as in the first, and FIRST counts it as in sync. Then THIRD learns of the
    second epoch. SECOND does not know that it was replaced, so THIRD truncates acknowledged records to match SECOND's
    log. THIRD is in the ISR when FIRST dies.
    """
    rng = draw(seed, "3: seen")
    faults = [
        seen.late_metadata(0.4, 9.0, seen.THIRD, rng.choice((1600, 1800, 2000, 2200))),
        seen.cut_from_controller(0.5, 1.5, seen.FIRST),
        seen.cut_from_controller(3.6, 5.0, seen.SECOND),
        fault(rng.uniform(5.3, 6.4), 3.0, "kill", f"node:{seen.FIRST}"),
    ]
    settings = {**seen.PATIENT_WITH_CONTROLLER, "replica.lag.time.max.ms": "20000"}
    return seen.client_visible_plan(seed, faults, settings=settings)


MUTANT = Mutant(
    id="3",
    name="no-fencing-of-fetches",
    title="serves fetches of every leader epoch",
    source="KAFKA-7395, KIP-320",
    replaces=(
        ReplacedFunction(PartitionRules, "check_leader_epoch", check_leader_epoch),
        ReplacedFunction(Log, "append_as_follower", append_as_follower),
    ),
    expected=(
        "epoch-cache",
        "committed-prefix",
        "strong-isr",
        "lost-write",
        "unseen",
        "inconsistent-offset",
        "nonmonotonic-poll",
        "poll-skip",
    ),
    faults=("pause", "partition"),
    plan=plan,
    client_visible_plan=client_visible_plan,
)
