"""Plants etcd #18089: a reader that begins at the log start offset of a log whose start was deleted skips the first
record.
"""

from __future__ import annotations

from squall.broker.apis.fetch import DelayedFetch, FetchApi
from squall.broker.apis.fetch_session import PartitionRequest
from squall.broker.protocol.hot import FetchResponsePartition
from squall.chaos.mutants.hunt_plans import draw, hunt_plan, somewhat_late
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

_SOUND = FetchApi._read


def _read(
    self: FetchApi, fetch: DelayedFetch, want: PartitionRequest, left: int, first: bool
) -> FetchResponsePartition:
    """Skip the first batch for a consumer that reads from the start of a log whose older records were deleted."""
    h, part = want.hosted, want.part
    if fetch.replica_id < 0 and h is not None and part.offset == h.log.log_start_offset > 0:
        batch = next(h.log.segments[0].walk_from(part.offset), None)
        if batch is not None:
            behind = batch.header.base_offset + batch.header.last_offset_delta + 1
            want = PartitionRequest(want.key, part._replace(offset=min(behind, h.state.high_watermark)), h)
    return _SOUND(self, fetch, want, left, first)


def plan(seed: int) -> Plan:
    """Return a plan in which retention deletes small segments while the load runs."""
    rng = draw(seed, "70")
    retention = {"segment.bytes": "4096", "retention.bytes": rng.choice(("8192", "16384"))}
    load = {"rate": 200, "batch_bytes": 1024, "topic_settings": retention}
    settings = {"log.retention.check.interval.ms": "200"}
    return hunt_plan(seed, somewhat_late(seed, "70"), settings=settings, workload=load, time_s=4.0)


MUTANT = Mutant(
    id="70",
    name="first-batch-skipped",
    title="leaves out the first batch for who reads from the start of a log that retention has cut",
    source="etcd #18089 (2024), #19179 (2025)",
    replaces=(ReplacedFunction(FetchApi, "_read", _read),),
    expected=("lost-write", "unseen", "poll-skip"),
    faults=("latency",),
    plan=plan,
)
