"""KAFKA-2143: a follower whose log is too long takes it for too old, and wipes it."""

from __future__ import annotations

from broker.replication import Effects, EpochCachePort, Partition, RestartAt
from chaos.mutants.hunt_plans import hunt_plan, killings_behind
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plans.plan import Plan


def diverged(self: Partition, epochs: EpochCachePort, epoch: int, end_offset: int) -> Effects:
    """Start anew at the log's start, with nothing."""
    return (RestartAt(self.log_start_offset, "the leader's log is another"),)


def out_of_range(self: Partition, leader_log_start: int, leader_log_end: int) -> Effects:
    """Start anew at the leader's start, whatever was out of range."""
    return (RestartAt(leader_log_start, f"the leader's log starts at {leader_log_start}"),)


def plan(seed: int) -> Plan:
    """Leaders die while their followers' logs are of different lengths."""
    return hunt_plan(seed, killings_behind(seed, "8", most_ms=40))


MUTANT = Mutant(
    id="8",
    name="too-new-as-too-old",
    title="wipes a log that is longer than the leader's",
    source="KAFKA-2143",
    replaces=(Replaced(Partition, "diverged", diverged), Replaced(Partition, "out_of_range", out_of_range)),
    expected=("truncation-keeps-committed", "strong-isr", "lost-write", "unseen"),
    faults=("kill", "latency"),
    plan=plan,
)
