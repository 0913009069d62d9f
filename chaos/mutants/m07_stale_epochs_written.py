"""Plants KAFKA-17142: the leader epochs are written in the background, from a snapshot that is outdated by then."""

from __future__ import annotations

from squall.broker.log import checkpoints
from squall.broker.log.epochs import EpochCache
from squall.chaos.mutants import client_visible_plans as seen
from squall.chaos.mutants.hunt_plans import REBALANCING, draw, fault, hunt_plan, killings
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def flush(self: EpochCache) -> None:
    """Write the leader epochs to the file, and then overwrite the file with all of them but the newest."""
    checkpoints.write_epochs(self._fs, self._path, self.entries)
    if len(self.entries) > 1:
        checkpoints.write_epochs(self._fs, self._path, self.entries[:-1])
    self.dirty = False


def plan(seed: int) -> Plan:
    """Return a plan with controlled restarts, after which brokers trust the file of leader epochs."""
    rng = draw(seed, "7")
    return hunt_plan(seed, killings(rng, rounds=4, action="stop"))


def client_visible_plan(seed: int) -> Plan:
    """Return a plan in which replica FIRST, the leader, dies with records that no other replica has. SECOND leads,
    writes other records in their place, and is soon alone in the ISR. SECOND is restarted and leads again, but has
    forgotten the epoch of its records.

    FIRST comes back. SECOND's answers do not make FIRST truncate its old records. Then FIRST leads again, because it is
    the preferred leader, and serves these records.
    """
    rng = draw(seed, "7: seen")
    faults = [
        seen.cut_fetches(0.8, 1.0, seen.SECOND, seen.FIRST),
        seen.cut_fetches(0.8, 1.0, seen.THIRD, seen.FIRST),
        fault(1.3, 3.6, "kill", f"node:{seen.FIRST}"),
        fault(rng.uniform(2.9, 3.1), 7.0, "stop", f"node:{seen.THIRD}"),
        fault(rng.uniform(3.5, 3.7), 0.5, "stop", f"node:{seen.SECOND}"),
    ]
    load = {**seen.ONE_BY_ONE, "producers": 6, "rate": 400}
    return seen.client_visible_plan(seed, faults, settings=REBALANCING, workload=load)


MUTANT = Mutant(
    id="7",
    name="stale-epochs-written",
    title="lets an older snapshot of the leader epochs overwrite a newer one",
    source="KAFKA-17142",
    replaces=(ReplacedFunction(EpochCache, "flush", flush),),
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
    client_visible_plan=client_visible_plan,
)
