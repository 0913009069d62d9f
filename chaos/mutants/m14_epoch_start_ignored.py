"""KAFKA-7128: a follower joins the ISR at the new leader's high watermark, which is behind what is committed."""

from __future__ import annotations

from broker.replication import Partition
from broker.replication.replica import Replica
from broker.replication.rules import Rules
from chaos.mutants.hunting_plans import draw, hunting_plan, killings, slow_links
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plan import Plan


def has_reached_isr(self: Partition, replica: Replica) -> bool:
    """The high watermark is enough."""
    return replica.log_end_offset >= self.high_watermark


def plan(seed: int) -> Plan:
    """Leaders die while somebody is about to join the ISR."""
    rng = draw(seed, "14")
    kills = killings(rng, rounds=6)
    return hunting_plan(seed, [slow_links(rng, 0.0, kills[-1]["at_s"]), *kills], workload={"rate": 400})


MUTANT = Mutant(
    id="14",
    name="epoch-start-ignored",
    title="lets followers into the ISR that have not reached the start of the leader's epoch",
    source="KAFKA-7128",
    replaces=(Replaced(Rules, "has_reached_isr", has_reached_isr),),
    expected=(
        "strong-isr",
        "valid-high-watermark",
        "leader-completeness",
        "lost-write",
        "unseen",
        "inconsistent-offset",
    ),
    faults=("kill", "latency"),
    plan=plan,
)
