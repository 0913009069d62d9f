"""Plants a bug with the effect of Redpanda #11360: replicas hold the same offset in different leader epochs. Redpanda's
cause is not known. Here a follower that catches up writes its leader's current epoch into every batch.

No checksum covers the epoch in a batch's header, and in the plans no client reads from this follower.
"""

from __future__ import annotations

import struct

from squall.broker.log.log import Log
from squall.broker.log.results import FollowerAppendResult
from squall.broker.protocol.records import batches
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

_SOUND = Log.append_as_follower
EPOCH_AT = 12
"""Is the position of the leader epoch in a batch's header."""


def append_as_follower(self: Log, records: memoryview, leader_epoch: int) -> FollowerAppendResult:
    """Append the batches, with the epoch in which they were fetched in place of the epochs in their headers."""
    rewritten = bytearray(records)
    for _, start, _ in batches(records):
        struct.pack_into(">i", rewritten, start + EPOCH_AT, leader_epoch)
    return _SOUND(self, memoryview(rewritten), leader_epoch)


def plan(seed: int) -> Plan:
    """Return a plan in which a follower is away while a leader dies, and then catches up in a later epoch. It never
    leads after that.
    """
    rng = draw(seed, "93")
    away, dies = rng.sample((1, 2, 3), 2)
    at_s = rng.uniform(0.4, 0.6)
    faults = [
        fault(at_s, rng.uniform(2.0, 2.4), "kill", f"node:{away}"),
        fault(at_s + rng.uniform(0.7, 0.9), rng.uniform(0.7, 0.9), "kill", f"node:{dies}"),
    ]
    return hunt_plan(seed, faults)


MUTANT = Mutant(
    id="93",
    name="epochs-rewritten-by-followers",
    title="appends a batch that it fetches in the epoch in which it fetches it",
    source="Redpanda #11360 (2023)",
    replaces=(ReplacedFunction(Log, "append_as_follower", append_as_follower),),
    expected=("log-matching", "replica-divergence"),
    unseen="the records are the same, and a broker that caught up so does not lead later; its files differ from its "
    "leader's (`--checks files`)",
    faults=("kill",),
    plan=plan,
)
