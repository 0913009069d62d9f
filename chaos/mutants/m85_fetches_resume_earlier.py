"""Plants librdkafka #4637, a bug of a client: fetching resumes at an earlier position, so records are returned again.

librdkafka did so when partitions were resumed. Here it happens when a new leader has confirmed the position.
"""

from __future__ import annotations

from collections.abc import Mapping

from squall.chaos.mutants.hunt_plans import REBALANCING, hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan
from squall.workloads.client.cluster import Leader, Place
from squall.workloads.client.connection import RequestFailed
from squall.workloads.client.consumer import Consumer, _PartitionState

_SOUND_ASSIGN, _SOUND_VALIDATED = Consumer.assign, Consumer._validated
STARTS = "fetch_starts"


def assign(self: Consumer, positions: Mapping[Place, int]) -> None:
    """Remember the positions at which fetching starts: the bug resumes there later."""
    vars(self)[STARTS] = dict(positions)
    _SOUND_ASSIGN(self, positions)


def _validated(
    self: Consumer,
    version: int,
    suspect: dict[Place, tuple[_PartitionState, Leader]],
    body: memoryview | None,
    failure: RequestFailed | None,
) -> None:
    """Do what the correct function does. Then, for each partition whose position a new leader has confirmed, go back to
    the remembered position. Remember the confirmed position for the next change of leaders.
    """
    _SOUND_VALIDATED(self, version, suspect, body, failure)
    starts = vars(self).setdefault(STARTS, {})
    for place, (part, leader) in suspect.items():
        if part.leader_epoch == leader.epoch and not part.resting:
            part.position, starts[place] = starts.get(place, part.position), part.position


def plan(seed: int) -> Plan:
    """Return a plan in which leadership moves again and again while readers read."""
    return hunt_plan(seed, killings_behind(seed, "85", rounds=3), settings=REBALANCING, workload={"readers": 2})


MUTANT = Mutant(
    id="85",
    name="fetches-resume-earlier",
    title="is sound; its client fetches again, after a change of leaders, from where it began to fetch before",
    source="librdkafka #4637 (2024)",
    replaces=(
        ReplacedFunction(Consumer, "assign", assign),
        ReplacedFunction(Consumer, "_validated", _validated),
    ),
    expected=("nonmonotonic-poll",),
    faults=("kill", "latency"),
    plan=plan,
)
