"""Plants Redpanda #22670: a broker forgets an idempotent producer long before producer.id.expiration.ms."""

from __future__ import annotations

from squall.broker.log.producer_rules import ProducerRules, ProducerStateEntry
from squall.chaos.mutants.hunt_plans import hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

FORGOTTEN_MS = 300


def may_forget(self: ProducerRules, entry: ProducerStateEntry, wall_ms: int, after_ms: int) -> bool:
    """Return True long before producer.id.expiration.ms."""
    return entry.txn_first_offset < 0 and wall_ms - entry.timestamp >= FORGOTTEN_MS


def plan(seed: int) -> Plan:
    """Return a plan in which leaders die with responses in flight. Brokers forget the producers before the producers
    find the next leader.
    """
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
