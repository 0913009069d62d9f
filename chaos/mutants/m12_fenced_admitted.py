"""Plants KAFKA-13916 (KIP-841): brokers that are fenced or shutting down are admitted to ISRs."""

from __future__ import annotations

from squall.broker.cluster.image import ClusterImage
from squall.broker.controller import isr
from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants import client_visible_plans as seen
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan, killings
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def is_available(image: ClusterImage, broker_id: int) -> bool:
    """Return True for any registered broker, even if it is fenced or shutting down."""
    return broker_id in image.brokers


def is_in_service(self: Partition, broker_id: int) -> bool:
    """Return True for any replica that fetches, even if its broker is fenced or shutting down."""
    return True


def plan(seed: int) -> Plan:
    """Return a plan with a rolling restart by controlled shutdown, over slow links."""
    rng = draw(seed, "12")
    stops = killings(rng, rounds=4, action="stop")
    slow = fault(0.0, stops[-1]["at_s"], "latency", "all", latency_ms=rng.choice((5, 20, 50)), jitter_ms=5)
    return hunt_plan(seed, [slow, *stops])


def client_visible_plan(seed: int) -> Plan:
    """Return a plan in which a follower is fenced, and is wrongly admitted to the ISR. The other replicas die, so that
    the fenced follower is the last member of the ISR. Then it loses its power, and is elected with what is left of its
    log.
    """
    rng = draw(seed, "12: seen")
    faults = [
        seen.cut_from_controller(0.5, 3.2, seen.SECOND),
        fault(rng.uniform(1.7, 1.9), 8.0, "kill", f"node:{seen.THIRD}"),
        fault(rng.uniform(2.7, 2.9), 3.5, "kill", f"node:{seen.FIRST}"),
        fault(3.6, 0.4, "power_loss", f"node:{seen.SECOND}"),
    ]
    return seen.client_visible_plan(seed, faults, settings=seen.NO_ELIGIBLE)


MUTANT = Mutant(
    id="12",
    name="fenced-admitted",
    title="lets fenced and stopping brokers into the ISR",
    source="KAFKA-13916, KIP-841",
    replaces=(
        ReplacedFunction(isr, "is_available", is_available),
        ReplacedFunction(PartitionRules, "is_in_service", is_in_service),
    ),
    expected=("isr-joins-in-service", "valid-decision", "strong-isr", "lost-write", "unseen"),
    faults=("stop", "latency"),
    plan=plan,
    client_visible_plan=client_visible_plan,
)
