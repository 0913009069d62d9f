"""Plants KAFKA-18723: a follower appends batches of an epoch that is above its leader's."""

from __future__ import annotations

from squall.broker.log import arrivals, log
from squall.broker.log.config import LONG_MAX
from squall.broker.log.scan import LocatedBatch
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

_SOUND = arrivals.checked_batches


def checked_batches(records: memoryview, expected: int, leader_epoch: int, *, gaps: bool) -> list[LocatedBatch]:
    """Return all batches, even those whose epoch is above the leader's. The correct function refuses such batches."""
    return _SOUND(records, expected, LONG_MAX, gaps=gaps)


def plan(seed: int) -> Plan:
    """Return a plan in which the leader's disk flips bits in the epoch of a batch, which no checksum covers, during the
    very first epoch. A follower that was down fetches this batch and appends it. A correct follower refuses it, and
    gets no further until retention has deleted the batch on the leader.

    Only the first epoch is suitable: a flipped bit may turn a later epoch into an earlier epoch, which cannot be
    detected. And the leader must not restart, because a leader that starts again trusts what it reads on its own disk.
    """
    rng = draw(seed, "62")
    at_s, away_s = rng.uniform(0.3, 0.6), rng.uniform(1.0, 1.4)
    faults = [
        fault(at_s, away_s, "kill", "follower"),
        fault(at_s + away_s - 0.3, 0.1, "bit_rot", "leader", where="epoch"),
    ]
    topic = {"segment.bytes": "2000", "retention.ms": "4000", "flush.messages": "1"}
    load = {"partitions": 1, "rate": 150, "batch_bytes": 1024, "topic_settings": topic}
    return hunt_plan(seed, faults, settings={"log.retention.check.interval.ms": "500"}, workload=load)


MUTANT = Mutant(
    id="62",
    name="batches-of-epochs-to-come",
    title="takes batches of a later epoch than its leader's from what it fetches",
    source="KAFKA-18723 (2025)",
    replaces=(ReplacedFunction(log, "checked_batches", checked_batches),),
    expected=("epoch-cache", "batches-in-epochs", "log-matching", "lost-write", "inconsistent-offset"),
    faults=("bit_rot", "kill"),
    plan=plan,
    unseen="what a follower took does harm only where it leads; damage of its leader's disk brings it, and once that "
    "leader is gone, a sound broker loses as much",
)
