"""Plants KAFKA-16541: the leader epochs are written, but not synced."""

from __future__ import annotations

from squall.broker.log.epochs import EpochCache
from squall.chaos.mutants.hunt_plans import draw, hunt_plan, killings
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.mutants.unsynced import replace_unsynced
from squall.chaos.plans.plan import Plan


def flush(self: EpochCache) -> None:
    """Replace the file of leader epochs, and mark it as written before it is synced."""
    rows = [f"{epoch} {start}" for epoch, start in self.entries]
    replace_unsynced(self._fs, self._path, "\n".join(["0", str(len(rows)), *rows, ""]).encode())
    self.dirty = False


def plan(seed: int) -> Plan:
    """Return a plan with power losses after leader changes. Segments are so small that most of them lie before the
    recovery point. Recovery does not scan these: it trusts the file of leader epochs instead.
    """
    rng = draw(seed, "6")
    settings = {"log.segment.bytes": "1024", "log.flush.interval.messages": "1"}
    workload = {"rate": 40, "partitions": 2}
    return hunt_plan(seed, killings(rng, rounds=5, action="power_loss"), settings=settings, workload=workload)


MUTANT = Mutant(
    id="6",
    name="unsynced-epochs",
    title="does not sync the leader epochs' file",
    source="KAFKA-16541",
    replaces=(ReplacedFunction(EpochCache, "flush", flush),),
    expected=(
        "epoch-durable-before-append",
        "epoch-cache",
        "batches-in-epochs",
        "inconsistent-offset",
        "replica-divergence",
    ),
    faults=("power_loss",),
    plan=plan,
    unseen="most files are damaged, and made again from the batches. One that is torn in its last number lets an epoch "
    "begin too early: then a follower outside of the ISR truncates too much, and copies it again",
)
