"""KAFKA-9539, KIP-570: decisions of the control plane that are no news are applied again."""

from __future__ import annotations

from broker.replication import LeaderAndIsr, Partition
from broker.replication.rules import Rules
from chaos.mutants.hunt_plans import draw, fault, hunt_plan
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plans.plan import Plan


def is_stale_state(self: Partition, state: LeaderAndIsr) -> bool:
    """Whatever comes is taken for news."""
    return False


def is_stale_stop(self: Partition, leader_epoch: int) -> bool:
    """Whatever comes is taken for news."""
    return False


def plan(seed: int) -> Plan:
    """Followers leave and join all the time, so that answers, metadata and further proposals cross on their way."""
    rng = draw(seed, "24")
    latency_ms = rng.randint(20, 40)
    slow = fault(0.1, 5.0, "latency", "all", latency_ms=latency_ms, jitter_ms=latency_ms * 3 // 4)
    settings = {
        "replica.lag.time.max.ms": str(rng.choice((60, 80, 100))),
        "replica.fetch.wait.max.ms": "20",
        "replica.fetch.backoff.ms": "20",
    }
    return hunt_plan(seed, [slow], settings=settings, workload={"rate": 120, "partitions": 6})


MUTANT = Mutant(
    id="24",
    name="old-states-applied",
    title="applies leaderships and ISRs that are older than what is in force",
    source="KAFKA-9539, KIP-570",
    replaces=(Replaced(Rules, "is_stale_state", is_stale_state), Replaced(Rules, "is_stale_stop", is_stale_stop)),
    expected=("epochs-monotone", "isr-superset", "strong-isr", "lost-write", "unseen", "inconsistent-offset"),
    faults=("latency",),
    plan=plan,
)
