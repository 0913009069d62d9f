"""KIP-497: a leader does not wait for those whom it has asked to add, though they may have been added."""

from __future__ import annotations

from broker.replication import Partition
from broker.replication.rules import Rules
from chaos.mutants.hunting_plans import draw, fault, hunting_plan, lagging
from chaos.mutants.mutant import Mutant, Replaced
from chaos.plan import Plan


def maximal_of(self: Partition, committed: tuple[int, ...], proposed: tuple[int, ...]) -> tuple[int, ...]:
    """The committed ISR: it holds those about to leave, and lacks those about to join."""
    return committed


def plan(seed: int) -> Plan:
    """Followers join and lag again at once, while the answers of the controller are late."""
    rng = draw(seed, "10")
    faults = lagging(rng, 0.3, rounds=4)
    end_s = max(f["at_s"] + f["duration_s"] for f in faults)
    delay_ms = rng.choice((300, 600, 900))
    late = fault(
        0.1,
        end_s,
        "protocol",
        "all",
        api="AlterPartition",
        act="delay",
        delay_ms=delay_ms,
        count=0,
        stream="back",
        side="peers",
    )
    return hunting_plan(seed, [late, *faults], settings={"replica.lag.time.max.ms": "200"})


MUTANT = Mutant(
    id="10",
    name="pending-member-omitted",
    title="does not wait for those about to join the ISR",
    source="KIP-497",
    replaces=(Replaced(Rules, "maximal_of", maximal_of),),
    expected=("isr-superset", "valid-high-watermark", "strong-isr", "lost-write", "unseen", "inconsistent-offset"),
    faults=("protocol", "pause", "partition"),
    plan=plan,
)
