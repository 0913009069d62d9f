"""Plants KAFKA-2143: a follower whose log is longer than its leader's believes that its log is outdated, and deletes
it.
"""

from __future__ import annotations

from squall.broker.replication import Effects, EpochCachePort, Partition, TruncateFullyAndStartAt
from squall.chaos.mutants import client_visible_plans as seen
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def diverged(self: Partition, epochs: EpochCachePort, epoch: int, end_offset: int) -> Effects:
    """Discard the log and begin an empty one at its start offset, where the correct function truncates."""
    return (TruncateFullyAndStartAt(self.log_start_offset, "the leader's log is another"),)


def out_of_range(self: Partition, leader_log_start: int, leader_log_end: int) -> Effects:
    """Discard the log and begin an empty one at the leader's log start offset. The correct function only truncates a
    log that is longer than the leader's.
    """
    return (TruncateFullyAndStartAt(leader_log_start, f"the leader's log starts at {leader_log_start}"),)


def plan(seed: int) -> Plan:
    """Return a plan in which leaders die while their followers' logs have different lengths."""
    return hunt_plan(seed, killings_behind(seed, "8", most_ms=40))


def client_visible_plan(seed: int) -> Plan:
    """Return a plan in which the leader dies, and the follower with fewer records is elected. The other follower, which
    is in the ISR, deletes its log. The responses with which it would copy all records again are late: the new leader
    dies before they arrive.
    """
    rng = draw(seed, "8: seen")
    faults = [
        seen.cut_fetches(1.0, 1.0, seen.SECOND, seen.FIRST),
        fault(rng.uniform(1.2, 1.5), 6.0, "kill", f"node:{seen.FIRST}"),
        seen.late_fetches(1.6, 4.0, seen.THIRD, seen.SECOND, 1500, "back"),
        fault(rng.uniform(3.7, 4.2), 2.5, "kill", f"node:{seen.SECOND}"),
    ]
    # Longer than the cuts: a follower that gets no records stays in the ISR.
    return seen.client_visible_plan(seed, faults, settings={"replica.lag.time.max.ms": "6000"})


MUTANT = Mutant(
    id="8",
    name="too-new-as-too-old",
    title="wipes a log that is longer than the leader's",
    source="KAFKA-2143",
    replaces=(
        ReplacedFunction(Partition, "diverged", diverged),
        ReplacedFunction(Partition, "out_of_range", out_of_range),
    ),
    expected=("truncation-keeps-committed", "strong-isr", "lost-write", "unseen"),
    faults=("kill", "latency"),
    plan=plan,
    client_visible_plan=client_visible_plan,
)
