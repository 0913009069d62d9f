"""Plants Redpanda PR 1557: without open transactions, a Fetch response has the end of the log as last stable offset."""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import READ_COMMITTED, PartitionRules
from squall.chaos.mutants.hunt_plans import hunt_plan, killings_behind
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

_SOUND = PartitionRules.last_stable_offset


def last_stable_offset(self: Partition, first_unstable_offset: int | None) -> int:
    """Return the log end offset if no transaction is open."""
    return self.log_end_offset if first_unstable_offset is None else _SOUND(self, first_unstable_offset)


def read_limit(self: Partition, isolation: int, first_unstable_offset: int | None) -> int:
    """Return the limit of the correct broker, so that no reader gets records too early: only the reported last stable
    offset is wrong.
    """
    return _SOUND(self, first_unstable_offset) if isolation == READ_COMMITTED else self.high_watermark


def plan(seed: int) -> Plan:
    """Return a plan in which followers lag, so that the high watermark is below the end of the log."""
    return hunt_plan(seed, killings_behind(seed, "88", rounds=2))


MUTANT = Mutant(
    id="88",
    name="stable-offset-above-high-watermark",
    title="tells readers a last stable offset that is not replicated yet",
    source="Redpanda PR 1557 (2021)",
    replaces=(
        ReplacedFunction(PartitionRules, "last_stable_offset", last_stable_offset),
        ReplacedFunction(PartitionRules, "read_limit", read_limit),
    ),
    expected=("stable-offset-is-a-replay", "lso-violation"),
    faults=("kill", "latency"),
    plan=plan,
)
