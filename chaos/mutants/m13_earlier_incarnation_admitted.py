"""KAFKA-14617, KIP-903: a broker joins an ISR by what an earlier incarnation of it held."""

from __future__ import annotations

from broker.controller import isr
from broker.controller.image import ClusterImage
from broker.protocol.schema.alter_partition import BrokerState
from broker.replication import Partition
from broker.replication.replica import Replica
from broker.replication.rules import Rules
from chaos.mutants.hunting_plans import draw, fault, hunting_plan
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plan import Plan


def controller_is_same_incarnation(image: ClusterImage, member: BrokerState) -> bool:
    """The id is enough."""
    return True


def leader_is_same_incarnation(self: Partition, replica: Replica) -> bool:
    """The id is enough."""
    return True


def plan(seed: int) -> Plan:
    """Power losses of nodes that have just come back, while AlterPartition takes as long as a restart."""
    rng = draw(seed, "13")
    at_s, faults = 0.5, []
    for _ in range(3):
        node = f"node:{rng.randint(1, 3)}"
        faults.append(fault(at_s, 0.8, "power_loss", node))
        again_s = at_s + 0.8 + rng.uniform(0.2, 0.9)
        faults.append(fault(again_s, 0.3, "power_loss", node))
        at_s = again_s + 0.3 + rng.uniform(1.5, 2.5)
    late = fault(
        0.1,
        at_s,
        "protocol",
        "all",
        api="AlterPartition",
        act="delay",
        delay_ms=rng.choice((700, 1200, 2000)),
        count=0,
        stream="there",
        side="peers",
    )
    return hunting_plan(seed, [late, *faults], workload={"rate": 300})


MUTANT = Mutant(
    id="13",
    name="earlier-incarnation-admitted",
    title="lets a broker into the ISR by what an earlier incarnation of it held",
    source="KAFKA-14617, KIP-903",
    replaces=(
        Replaced(isr, "is_same_incarnation", controller_is_same_incarnation),
        Replaced(Rules, "is_same_incarnation", leader_is_same_incarnation),
    ),
    expected=("strong-isr", "valid-high-watermark", "leader-completeness", "lost-write", "unseen"),
    faults=("power_loss", "protocol"),
    plan=plan,
)
