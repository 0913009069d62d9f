"""KAFKA-17142: the leader epochs are written in the background, from a snapshot that is out of date by then."""

from __future__ import annotations

from broker.log import checkpoints
from broker.log.epochs import EpochCache
from chaos.mutants.hunt_plans import draw, hunt_plan, killings
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plans.plan import Plan


def flush(self: EpochCache) -> None:
    """The snapshot of before the last change is what arrives last."""
    checkpoints.write_epochs(self._fs, self._path, self.entries)
    if len(self.entries) > 1:
        checkpoints.write_epochs(self._fs, self._path, self.entries[:-1])
    self.dirty = False


def plan(seed: int) -> Plan:
    """Controlled restarts: after one, the file is what is believed."""
    rng = draw(seed, "7")
    return hunt_plan(seed, killings(rng, rounds=4, action="stop"))


MUTANT = Mutant(
    id="7",
    name="stale-epochs-written",
    title="lets an older snapshot of the leader epochs overwrite a newer one",
    source="KAFKA-17142",
    replaces=(Replaced(EpochCache, "flush", flush),),
    expected=(
        "epoch-durable-before-append",
        "epoch-cache",
        "batches-in-epochs",
        "truncation-keeps-committed",
        "inconsistent-offset",
        "replica-divergence",
    ),
    faults=("stop",),
    plan=plan,
)
