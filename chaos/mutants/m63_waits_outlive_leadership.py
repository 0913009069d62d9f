"""Plants KAFKA-20634: a leader that becomes a follower keeps the produce requests that wait for its high watermark. It
acknowledges them when the next leader's high watermark passes their offsets.
"""

from __future__ import annotations

from squall.broker.replicas.flushes import UnflushedAppend
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.broker.replicas.purgatory import ProducePurgatory
from squall.broker.replicas.replica_manager import ReplicaManager
from squall.chaos.mutants.hunt_plans import REBALANCING, draw, hunt_plan, killings, slow_links
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

_SOUND = ReplicaManager.followed


def answer_all(self: ProducePurgatory, error: int, leader: tuple[int, int]) -> None:
    """Leave the produce requests waiting, where the correct function answers them with an error."""


def followed(
    self: ReplicaManager, h: HostedPartition, leader_high_watermark: int, leader_log_start: int
) -> UnflushedAppend | None:
    """Do what the correct function does. Then acknowledge the waiting produce requests below the high watermark,
    although this broker is a follower.
    """
    held = _SOUND(self, h, leader_high_watermark, leader_log_start)
    h.uncommitted.answer_up_to(h.state.high_watermark, 0)
    return held


def plan(seed: int) -> Plan:
    """Return a plan in which leadership moves back to earlier leaders while slow followers have not fetched all
    records. Meanwhile other producers write to the same partitions.
    """
    rng = draw(seed, "63")
    kills = killings(rng, rounds=5)
    load = {"producers": 4, "rate": 300, "request_timeout_ms": 5000, "delivery_timeout_ms": 15_000}
    slow = slow_links(rng, 0.0, kills[-1]["at_s"] + 2.0)
    return hunt_plan(seed, [slow, *kills], settings=REBALANCING, workload=load)


MUTANT = Mutant(
    id="63",
    name="waits-outlive-leadership",
    title="acknowledges what it appended as a leader once the next leader's high watermark passes its offset",
    source="KAFKA-20634 (2026)",
    replaces=(
        ReplacedFunction(ProducePurgatory, "answer_all", answer_all),
        ReplacedFunction(ReplicaManager, "followed", followed),
    ),
    expected=(
        "acknowledged-is-committed",
        "acknowledged-is-replicated",
        "acknowledged-offset",
        "lost-write",
        "unseen",
        "wrong-offset",
        "stale-ack",
    ),
    faults=("kill", "latency"),
    plan=plan,
)
