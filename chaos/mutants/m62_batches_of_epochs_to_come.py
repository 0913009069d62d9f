"""KAFKA-18723: a follower takes batches of an epoch that is above its leader's."""

from __future__ import annotations

from broker.log import arrivals, log
from broker.log.config import LONG_MAX
from broker.log.scan import Placed
from chaos.mutants.hunt_plans import REBALANCING, draw, fault, hunt_plan, killings
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plans.plan import Plan

_SOUND = arrivals.checked_batches


def checked_batches(records: memoryview, expected: int, leader_epoch: int, *, gaps: bool) -> list[Placed]:
    """Of whatever epoch."""
    return _SOUND(records, expected, LONG_MAX, gaps=gaps)


def plan(seed: int) -> Plan:
    """Bits of a leader's log rot, and no checksum covers the epoch of a batch; a follower that was down reads it."""
    rng = draw(seed, "62")
    kills = killings(rng, rounds=4)
    rot = [fault(kill["at_s"] + 0.3, 0.3, "bit_rot", "random", bits=1) for kill in kills]
    small = {"segment.bytes": "4096"}
    load = {"rate": 100, "max_bytes": 100, "batch_bytes": 1024, "topic_settings": small}
    return hunt_plan(seed, [*kills, *rot], settings=REBALANCING, workload=load)


MUTANT = Mutant(
    id="62",
    name="batches-of-epochs-to-come",
    title="takes batches of a later epoch than its leader's from what it fetches",
    source="KAFKA-18723 (2025)",
    replaces=(Replaced(log, "checked_batches", checked_batches),),
    expected=("epoch-cache", "batches-in-epochs", "log-matching", "lost-write", "inconsistent-offset"),
    faults=("bit_rot", "kill"),
    plan=plan,
    masked="a connection is reset before its log is truncated, so no answer has other batches than were asked for; and "
    "of bits that rot hardly one is in an epoch",
)
