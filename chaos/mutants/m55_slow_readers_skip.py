"""Plants a bug of Bufstream 0.1: a reader that has fallen behind does not get the records between its position and the
end.
"""

from __future__ import annotations

from squall.broker.apis.fetch import DelayedFetch, FetchApi
from squall.broker.apis.fetch_session import PartitionRequest
from squall.broker.protocol.hot import FetchResponsePartition
from squall.chaos.mutants.hunt_plans import draw, hunt_plan, somewhat_late
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

_SOUND = FetchApi._read
BEHIND, LEFT = 60, 20
"""A reader that is more than BEHIND records behind the high watermark is slow: it skips to LEFT records before the high
watermark.
"""


def _read(
    self: FetchApi, fetch: DelayedFetch, want: PartitionRequest, left: int, first: bool
) -> FetchResponsePartition:
    """Read from LEFT records before the high watermark, and not from the requested offset, if the consumer is slow."""
    h, part = want.hosted, want.part
    if fetch.replica_id < 0 and h is not None and h.state.high_watermark - part.offset > BEHIND:
        want = PartitionRequest(want.key, part._replace(offset=h.state.high_watermark - LEFT), h)
    return _SOUND(self, fetch, want, left, first)


def plan(seed: int) -> Plan:
    """Return a plan in which readers pause after each poll."""
    rng = draw(seed, "55")
    late = somewhat_late(seed, "55")
    return hunt_plan(seed, late, workload={"rate": 300, "partitions": 1, "poll_pause_ms": rng.choice((300, 500))})


MUTANT = Mutant(
    id="55",
    name="slow-readers-skip",
    title="leaves out what a slow reader has not read yet",
    source="Jepsen: Bufstream 0.1",
    replaces=(ReplacedFunction(FetchApi, "_read", _read),),
    expected=("poll-skip", "lost-write", "unseen"),
    faults=("latency",),
    plan=plan,
)
