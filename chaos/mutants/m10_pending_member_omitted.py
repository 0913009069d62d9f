"""Plants the bug of KIP-497: a leader does not wait for replicas that it has asked to add to the ISR, though the
controller may have added them.
"""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants import client_visible_plans as seen
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def maximal_of(self: Partition, committed: tuple[int, ...], proposed: tuple[int, ...]) -> tuple[int, ...]:
    """Return the committed ISR only. The correct function adds the replicas that the leader has proposed to add,
    because the controller may have added them already.
    """
    return committed


def plan(seed: int) -> Plan:
    """Return a plan in which a paused follower joins the ISR again. Its leader learns this some time after the
    controller has decided it, and records arrive meanwhile.
    """
    rng = draw(seed, "10")
    at_s, node = 0.5, f"node:{rng.randint(1, 3)}"
    faults = [
        fault(0.1, 3.0, "latency", "all", latency_ms=rng.randint(20, 40), jitter_ms=5),
        fault(at_s, 0.6, "pause", node),
        fault(at_s + rng.uniform(0.8, 1.0), 0.7, "pause", node),
    ]
    sent_s = [at_s + 0.2, *(at_s + 0.6 + 0.04 * n for n in range(12))]
    operations = [
        [round(sent + 0.013 * index, 3), n % 2, "appends-0", index, 100]
        for n, sent in enumerate(sent_s)
        for index in range(3)
    ]
    settings = {"replica.lag.time.max.ms": "200", "broker.session.timeout.ms": "1000"}
    return hunt_plan(seed, faults, settings=settings, operations=operations)


def client_visible_plan(seed: int) -> Plan:
    """Return a plan in which a follower joins, and its leader never learns that the controller has agreed. The follower
    gets no more records; its leader continues without it and dies.
    """
    rng = draw(seed, "10: seen")
    cut_s = 1.4 + rng.uniform(0.15, 0.5)
    faults = [
        seen.cut_fetches(0.6, 0.8, seen.SECOND, seen.FIRST),
        seen.late_proposals(1.3, 3.0, seen.FIRST, 4000, "back"),
        seen.late_metadata(1.3, 3.0, seen.FIRST, 4000),
        seen.cut_fetches(cut_s, 3.0, seen.SECOND, seen.FIRST),
        fault(cut_s + rng.uniform(0.5, 0.8), 3.0, "kill", f"node:{seen.FIRST}"),
    ]
    settings = {"replica.lag.time.max.ms": "200", "broker.session.timeout.ms": "1000"}
    return seen.client_visible_plan(seed, faults, settings={**seen.PATIENT_WITH_CONTROLLER, **settings})


MUTANT = Mutant(
    id="10",
    name="pending-member-omitted",
    title="does not wait for those about to join the ISR",
    source="KIP-497",
    replaces=(ReplacedFunction(PartitionRules, "maximal_of", maximal_of),),
    expected=("isr-superset", "valid-high-watermark", "strong-isr", "lost-write", "unseen", "inconsistent-offset"),
    faults=("pause", "latency"),
    plan=plan,
    client_visible_plan=client_visible_plan,
)
