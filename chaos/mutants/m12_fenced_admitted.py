"""KAFKA-13916, KIP-841: brokers that are fenced or shutting down are let into ISRs."""

from __future__ import annotations

from broker.cluster.image import ClusterImage
from broker.controller import isr
from broker.replication import Partition
from broker.replication.rules import Rules
from chaos.mutants.hunt_plans import draw, fault, hunt_plan, killings
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plans.plan import Plan


def is_available(image: ClusterImage, broker_id: int) -> bool:
    """Registered is enough."""
    return broker_id in image.brokers


def is_in_service(self: Partition, broker_id: int) -> bool:
    """Whoever fetches."""
    return True


def plan(seed: int) -> Plan:
    """A rolling restart by controlled shutdown, links being slow."""
    rng = draw(seed, "12")
    stops = killings(rng, rounds=4, action="stop")
    slow = fault(0.0, stops[-1]["at_s"], "latency", "all", latency_ms=rng.choice((5, 20, 50)), jitter_ms=5)
    return hunt_plan(seed, [slow, *stops])


MUTANT = Mutant(
    id="12",
    name="fenced-admitted",
    title="lets fenced and stopping brokers into the ISR",
    source="KAFKA-13916, KIP-841",
    replaces=(Replaced(isr, "is_available", is_available), Replaced(Rules, "is_in_service", is_in_service)),
    expected=("isr-joins-in-service", "valid-decision", "strong-isr", "lost-write", "unseen"),
    faults=("stop", "latency"),
    plan=plan,
)
