"""KAFKA-9539, KIP-570: decisions of the control plane that are no news are applied again."""

from __future__ import annotations

from broker.replication import LeaderAndIsr, Partition
from broker.replication.rules import Rules
from chaos.mutants.hunting_plans import draw, fault, hunting_plan, lagging
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plan import Plan


def is_stale_state(self: Partition, state: LeaderAndIsr) -> bool:
    """Whatever comes is taken for news."""
    return False


def is_stale_stop(self: Partition, leader_epoch: int) -> bool:
    """Whatever comes is taken for news."""
    return False


def plan(seed: int) -> Plan:
    """ISRs shrink and grow, and metadata arrives later than the controller's answers."""
    rng = draw(seed, "24")
    faults = lagging(rng, 0.3, rounds=5)
    end_s = max(f["at_s"] + f["duration_s"] for f in faults)
    slow = fault(0.0, end_s, "latency", "all", latency_ms=rng.choice((5, 20, 50)), jitter_ms=5)
    return hunting_plan(seed, [slow, *faults], settings={"replica.lag.time.max.ms": "250"})


MUTANT = Mutant(
    id="24",
    name="old-states-applied",
    title="applies leaderships and ISRs that are older than what is in force",
    source="KAFKA-9539, KIP-570",
    replaces=(Replaced(Rules, "is_stale_state", is_stale_state), Replaced(Rules, "is_stale_stop", is_stale_stop)),
    expected=("epochs-monotone", "isr-superset", "strong-isr", "lost-write", "unseen", "inconsistent-offset"),
    faults=("pause", "partition", "latency"),
    plan=plan,
)
