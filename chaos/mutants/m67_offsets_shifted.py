"""Plants Redpanda PR 29849: after a truncation, clients get offsets that differ from those in the log."""

from __future__ import annotations

from squall.broker.log.log import Log
from squall.broker.log.results import AppendResult
from squall.broker.protocol.record_walk import CheckedBatch
from squall.chaos.mutants.hunt_plans import REBALANCING, draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

_SOUND = Log.append_as_leader


def append_as_leader(
    self: Log,
    records: memoryview,
    leader_epoch: int,
    wall_ms: int,
    *,
    client: bool = True,
    zstd: bool = True,
    checked: CheckedBatch | AppendResult | None = None,
) -> AppendResult:
    """Do what the correct function does, but return an offset that each truncation shifts by one."""
    done = _SOUND(self, records, leader_epoch, wall_ms, client=client, zstd=zstd, checked=checked)
    # `generation` counts the truncations of the log.
    shifted = client and not done.error
    return done._replace(base_offset=done.base_offset + self.generation) if shifted else done


def plan(seed: int) -> Plan:
    """Return a plan in which leaders are cut off, truncate when they are back, and lead again."""
    rng = draw(seed, "67")
    at_s, faults = 0.4, []
    for _ in range(3):
        length_s = rng.uniform(0.9, 1.5)
        node = f"node:{rng.randint(1, 3)}"
        faults.append(fault(at_s, length_s, "partition", node, shape="isolate", manner="drop"))
        at_s += length_s + rng.uniform(1.5, 2.2)
    return hunt_plan(seed, faults, settings=REBALANCING)


MUTANT = Mutant(
    id="67",
    name="offsets-shifted",
    title="tells offsets that are shifted by each truncation of its log",
    source="Redpanda PR 29849 (2026)",
    replaces=(ReplacedFunction(Log, "append_as_leader", append_as_leader),),
    expected=("wrong-offset", "stale-ack", "acknowledged-offset", "acknowledged-is-committed"),
    faults=("partition",),
    plan=plan,
)
