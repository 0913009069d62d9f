"""Plants librdkafka #1092, a bug of a client: a batch that must be sent again is put behind the batches that were
queued after it.
"""

from __future__ import annotations

from squall.chaos.mutants.hunt_plans import hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan
from squall.workloads.client.accumulator import ProducerBatch, RecordAccumulator, SettledBatch

_SOUND = RecordAccumulator._requeue


def _requeue(self: RecordAccumulator, batch: ProducerBatch, now_ms: int) -> list[SettledBatch]:
    """Put the batch at the end of its partition's queue."""
    settled = _SOUND(self, batch, now_ms)
    waiting = batch.lane.waiting
    if batch in waiting:
        waiting.remove(batch)
        waiting.append(batch)
    return settled


def plan(seed: int) -> Plan:
    """Return a plan in which leaders die under producers without idempotence, which keep one request in flight: that
    alone guarantees the order of their records.
    """
    workload = {"idempotence": False, "max_in_flight": 1, "rate": 300}
    return hunt_plan(seed, killings_behind(seed, "83", rounds=4), workload=workload)


MUTANT = Mutant(
    id="83",
    name="retries-go-behind",
    title="is sound; its client sends a batch again only after the batches that were queued behind it",
    source="librdkafka #1092 (2017)",
    replaces=(ReplacedFunction(RecordAccumulator, "_requeue", _requeue),),
    expected=("send-reorder",),
    faults=("kill", "latency"),
    plan=plan,
)
