"""KAFKA-2334, KIP-207: a new leader tells "latest" from a high watermark that is behind its predecessor's."""

from __future__ import annotations

from broker.replication import Partition
from broker.replication.rules import Rules
from chaos.mutants.hunting_plans import REBALANCING, draw, hunting_plan, killings, slow_links
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plan import Plan


def latest_offset_available(self: Partition) -> bool:
    """At once."""
    return True


def plan(seed: int) -> Plan:
    """Leaders change often, and followers know the high watermark late."""
    rng = draw(seed, "21")
    kills = killings(rng, rounds=5)
    return hunting_plan(seed, [slow_links(rng, 0.0, kills[-1]["at_s"]), *kills], settings=REBALANCING)


MUTANT = Mutant(
    id="21",
    name="low-latest-offset",
    title="tells the latest offset before it has reached the start of its epoch",
    source="KAFKA-2334, KIP-207",
    replaces=(Replaced(Rules, "latest_offset_available", latest_offset_available),),
    expected=("offset-regression", "nonmonotonic-poll", "poll-skip"),
    faults=("kill", "latency"),
    plan=plan,
)
