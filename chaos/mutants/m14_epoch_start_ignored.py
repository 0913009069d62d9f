"""KAFKA-7128: a follower joins the ISR at the new leader's high watermark, which is behind what is committed."""

from __future__ import annotations

from broker.replication import Partition
from broker.replication.replica import Replica
from broker.replication.rules import Rules
from chaos.mutants.hunting_plans import draw, fault, hunting_plan
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plan import Plan


def has_reached_isr(self: Partition, replica: Replica) -> bool:
    """The high watermark is enough."""
    return replica.log_end_offset >= self.high_watermark


def plan(seed: int) -> Plan:
    """A follower far away comes back, and has nearly caught up when its leader dies: the next one knows the high
    watermark late, for hardly anything is written.
    """
    rng = draw(seed, "14")
    far = rng.randint(1, 5)
    at_s, faults = 1.0, []
    for leader in rng.sample([n for n in range(1, 6) if n != far], 2):
        faults.append(fault(at_s, 1.5, "pause", f"node:{far}"))
        faults.append(fault(at_s + 1.5 + rng.uniform(0.3, 0.7), 1.2, "kill", f"node:{leader}"))
        at_s += 7.0
    slow = fault(0.1, at_s, "latency", f"node:{far}", latency_ms=200, jitter_ms=10)
    settings = {
        "broker.session.timeout.ms": "2400",
        "replica.fetch.wait.max.ms": "500",
        "controller.quorum.request.timeout.ms": "1000",
        "controller.quorum.fetch.timeout.ms": "1500",
    }
    workload = {"rate": 40, "partitions": 10}
    return hunting_plan(seed, [slow, *faults], nodes=5, settings=settings, workload=workload)


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
    faults=("pause", "kill", "latency"),
    plan=plan,
)
