"""Plants etcd #17529: a watcher that could not take events loses them, and continues with the next events."""

from __future__ import annotations

from bisect import bisect_right

from squall.broker.apis.fetch import DelayedFetch
from squall.broker.apis.fetch_session import PartitionRequest
from squall.chaos.mutants.hunt_plans import draw, hunt_plan, slow_links
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

_SOUND = DelayedFetch.wake


def wake(self: DelayedFetch) -> None:
    """Give a waiting consumer only the newest batch, and none of the batches before it."""
    if self.replica_id < 0:
        self.wants = [_newest(want) for want in self.wants]
        self.look = list(enumerate(self.wants))
    _SOUND(self)


def _newest(want: PartitionRequest) -> PartitionRequest:
    h = want.hosted
    if h is None:
        return want
    ends = h.log.segments[-1].ends
    # The end of the last committed batch but one is where the last committed batch begins.
    newest = ends[max(0, bisect_right(ends, h.state.high_watermark) - 2)]
    return PartitionRequest(want.key, want.part._replace(offset=max(want.part.offset, newest)), want.hosted)


def plan(seed: int) -> Plan:
    """Return a plan in which followers acknowledge late, so that several batches are committed at once while readers
    wait.
    """
    rng = draw(seed, "69")
    return hunt_plan(seed, [slow_links(rng, rng.uniform(0.1, 0.5), 3.0)], workload={"rate": 300, "partitions": 1})


MUTANT = Mutant(
    id="69",
    name="woken-readers-skip",
    title="gives a reader that waited only the newest of several batches",
    source="etcd #17529, PR 17555 (2024)",
    replaces=(ReplacedFunction(DelayedFetch, "wake", wake),),
    expected=("poll-skip",),
    faults=("latency",),
    plan=plan,
)
