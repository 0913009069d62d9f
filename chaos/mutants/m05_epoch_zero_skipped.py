"""KAFKA-10432: recovery takes the first epoch, 0, for none, and forgets it."""

from __future__ import annotations

from broker.log import recovery
from broker.protocol.records import BatchHeader
from chaos.mutants.hunt_plans import draw, hunt_plan, killings
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plans.plan import Plan


def has_epoch(header: BatchHeader) -> bool:
    """Only epochs above 0 count."""
    return header.leader_epoch > 0


def plan(seed: int) -> Plan:
    """Nodes die, or lose power, while their logs are all of epoch 0."""
    rng = draw(seed, "5")
    return hunt_plan(seed, killings(rng, rounds=2, action=rng.choice(("kill", "power_loss"))))


MUTANT = Mutant(
    id="5",
    name="epoch-zero-skipped",
    title="forgets epoch 0 when it recovers a log",
    source="KAFKA-10432",
    replaces=(Replaced(recovery, "has_epoch", has_epoch),),
    expected=(
        "truncation-keeps-committed",
        "epoch-cache",
        "batches-in-epochs",
        "inconsistent-offset",
        "replica-divergence",
    ),
    faults=("kill", "power_loss"),
    plan=plan,
)
