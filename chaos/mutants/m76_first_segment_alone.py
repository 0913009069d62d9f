"""Plants KAFKA-5600: a coordinator reads the offsets of a log of several segments wrongly when it loads them.

Kafka 0.11.0.0 then returned offsets that were long outdated. Here the offsets of all segments but the first are
missing.
"""

from __future__ import annotations

from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator, HostedGroupShard
from squall.chaos.mutants.group_plans import GROUP, LEAVE, act, group_plan
from squall.chaos.mutants.hunt_plans import draw, fault
from squall.chaos.mutants.mutant import GROUPS, Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


async def _load(self: GroupCoordinator, shard: HostedGroupShard) -> None:
    """Load the first segment only."""
    log = shard.log.hosted.log
    begins = [segment.base_offset for segment in log.segments] + [log.log_end_offset]
    for header, batch in log.read_batches(log.log_start_offset, begins[1]):
        self._replay(shard, header, memoryview(batch))
    shard.replayed = True
    shard.log.when_committed(log.log_end_offset - 1, lambda _: self._serve(shard))


def plan(seed: int) -> Plan:
    """Return a plan in which the coordinator dies after many commits, when there is nothing more to commit. Then a
    member leaves.
    """
    rng = draw(seed, "76")
    down = fault(rng.uniform(3.4, 4.0), rng.uniform(1.0, 1.5), "kill", GROUP)
    goes = act(rng.uniform(5.5, 6.0), 0, LEAVE, 0.5)
    settings = {"offsets.topic.segment.bytes": "1500"}
    return group_plan(seed, [down], [goes], time_s=7.0, settings=settings, sends_s=3.0)


MUTANT = Mutant(
    id="76",
    name="first-segment-alone",
    title="loads the groups of the first segment of its log alone",
    source="KAFKA-5600",
    replaces=(ReplacedFunction(GroupCoordinator, "_load", _load),),
    expected=("lost-position",),
    faults=("kill",),
    plan=plan,
    group=GROUPS,
)
