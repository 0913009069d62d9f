"""Plants KAFKA-2942, a bug of a client and not of a broker: a consumer commits records that it has fetched, but not yet
returned to its caller.

The bug is planted in Squall's own client: the checks must distinguish a consumer that skips records from a broker that
loses them.
"""

from __future__ import annotations

from collections.abc import Collection

from squall.chaos.mutants.group_plans import LEAVE, act, group_plan
from squall.chaos.mutants.hunt_plans import draw
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan
from squall.workloads.client.cluster import Place
from squall.workloads.client.groups.offsets import CommitOutcome
from squall.workloads.subscriber import Subscriber


async def commit(self: Subscriber, why: str, only: Collection[Place] | None = None) -> CommitOutcome | None:
    """Commit up to the position that the client has fetched."""
    for part in self.reader.consumer._parts.values():
        part.returned = part.position
    return await _SOUND(self, why, only)


_SOUND = Subscriber.commit


def plan(seed: int) -> Plan:
    """Return a plan in which members commit periodically. Six times, one of them commits, leaves the group, and comes
    back.
    """
    rng = draw(seed, "46")
    acts = [act(1.5 + 0.7 * n + rng.uniform(0.0, 0.5), n % 2, LEAVE, 0.3) for n in range(6)]
    workload = {"auto_commit": True, "rate": 40, "poll_pause_ms": 150}
    return group_plan(seed, [], acts, time_s=6.0, workload=workload)


MUTANT = Mutant(
    id="46",
    name="commits-what-it-prefetched",
    title="is sound; its client commits what it has fetched before the application gets it",
    source="KAFKA-2942",
    replaces=(ReplacedFunction(Subscriber, "commit", commit),),
    expected=("commit-ahead",),
    faults=(),
    plan=plan,
    group=GROUPS,
)
