"""Redpanda #22670: an idempotent producer is forgotten by a clock that is not its own."""

from __future__ import annotations

from squall.broker.log.producer_rules import ProducerRules, ProducerStateEntry
from squall.chaos.mutants.hunt_plans import hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

FORGOTTEN_MS = 300


def may_forget(self: ProducerRules, entry: ProducerStateEntry, wall_ms: int, after_ms: int) -> bool:
    """Long before producer.id.expiration.ms."""
    return entry.txn_first_offset < 0 and wall_ms - entry.timestamp >= FORGOTTEN_MS


def plan(seed: int) -> Plan:
    """Leaders die with answers under way, and it takes longer to find the next one than producers are remembered."""
    settings = {"log.retention.check.interval.ms": "100"}
    return hunt_plan(seed, killings_behind(seed, "66"), settings=settings)


MUTANT = Mutant(
    id="66",
    name="producers-forgotten",
    title="forgets an idempotent producer long before producer.id.expiration.ms",
    source="Redpanda #22670 (2024)",
    replaces=(ReplacedFunction(ProducerRules, "may_forget", may_forget),),
    expected=("appended-once", "producer-state-is-a-replay", "duplicate"),
    faults=("kill", "latency"),
    plan=plan,
)
