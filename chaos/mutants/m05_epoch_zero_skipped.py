"""Plants KAFKA-10432: recovery takes epoch 0, the first epoch, for "no epoch", and drops it from the leader epochs."""

from __future__ import annotations

from squall.broker.log import recovery
from squall.broker.protocol.records import BatchHeader
from squall.chaos.mutants import client_visible_plans as seen
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan, killings
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def has_epoch(header: BatchHeader) -> bool:
    """Return True only for epochs above 0."""
    return header.leader_epoch > 0


def plan(seed: int) -> Plan:
    """Return a plan in which nodes die, or lose power, while their logs contain only epoch 0."""
    rng = draw(seed, "5")
    return hunt_plan(seed, killings(rng, rounds=2, action=rng.choice(("kill", "power_loss"))))


def client_visible_plan(seed: int) -> Plan:
    """Return a plan in which a follower restarts and truncates to its high watermark, which was never checkpointed.
    Before it has copied records again the other replicas die, and an unclean election makes it the leader. A correct
    follower still has all records: nothing was written since it died.
    """
    rng = draw(seed, "5: seen")
    faults = [
        fault(2.2, 0.3, "kill", f"node:{seen.THIRD}"),
        seen.late_fetches(2.3, 6.0, seen.THIRD, seen.FIRST, 6000, "back"),
        seen.late_fetches(2.3, 6.0, seen.THIRD, seen.SECOND, 6000, "back"),
        fault(rng.uniform(3.3, 3.6), 3.0, "kill", f"node:{seen.FIRST}"),
        fault(3.7, 3.0, "kill", f"node:{seen.SECOND}"),
    ]
    settings = {
        "unclean.leader.election.enable": "true",
        "replica.high.watermark.checkpoint.interval.ms": "60000",
    }
    return seen.client_visible_plan(seed, faults, settings=settings, operations=seen.until(1.6))


MUTANT = Mutant(
    id="5",
    name="epoch-zero-skipped",
    title="forgets epoch 0 when it recovers a log",
    source="KAFKA-10432",
    replaces=(ReplacedFunction(recovery, "has_epoch", has_epoch),),
    expected=(
        "truncation-keeps-committed",
        "epoch-cache",
        "batches-in-epochs",
        "inconsistent-offset",
        "replica-divergence",
    ),
    faults=("kill", "power_loss"),
    plan=plan,
    client_visible_plan=client_visible_plan,
)
