"""Bufstream 0.1: acknowledgements tell offset 0."""

from __future__ import annotations

from squall.broker.apis import produce
from squall.broker.protocol.hot import ProducePartOut
from squall.broker.replicas.purgatory import ProduceResult
from squall.chaos.mutants.hunt_plans import hunt_plan, somewhat_late
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def _on_the_wire(r: ProduceResult) -> ProducePartOut:
    """Whatever offset it has."""
    offset = -1 if r.error else 0
    return r.index, r.error, offset, r.append_time_ms, r.log_start_offset, r.message, r.leader, r.faults


def plan(seed: int) -> Plan:
    """Nothing need go wrong."""
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
