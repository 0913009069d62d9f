"""Plants a bug of Bufstream 0.1: every acknowledgement says offset 0."""

from __future__ import annotations

from squall.broker.apis import produce
from squall.broker.protocol.hot import ProducePartOut
from squall.broker.replicas.purgatory import ProduceResult
from squall.chaos.mutants.hunt_plans import hunt_plan, somewhat_late
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def _on_the_wire(r: ProduceResult) -> ProducePartOut:
    """Encode offset 0, whatever offset the record has."""
    offset = -1 if r.error else 0
    return r.index, r.error, offset, r.append_time_ms, r.log_start_offset, r.message, r.leader, r.faults


def plan(seed: int) -> Plan:
    """Return a plan that needs no fault."""
    return hunt_plan(seed, somewhat_late(seed, "54"))


MUTANT = Mutant(
    id="54",
    name="offset-zero",
    title="acknowledges every batch with offset 0",
    source="Jepsen: Bufstream 0.1",
    replaces=(ReplacedFunction(produce, "_on_the_wire", _on_the_wire),),
    expected=("acknowledged-offset", "wrong-offset", "stale-ack"),
    faults=("latency",),
    plan=plan,
)
