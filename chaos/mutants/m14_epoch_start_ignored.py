"""Plants KAFKA-7128: a follower joins the ISR as soon as it reaches the new leader's high watermark. This high
watermark may be too low: the follower may still lack records that the previous leader has committed.
"""

from __future__ import annotations

from squall.broker.replication import Partition
from squall.broker.replication.replica import FollowerReplicaState
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants import client_visible_plans as seen
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan

PARTITIONS = 10


def has_reached_isr(self: Partition, replica: FollowerReplicaState) -> bool:
    """Return True once the follower's log reaches the leader's high watermark, even if it does not reach the start of
    the leader's epoch.
    """
    return replica.log_end_offset >= self.high_watermark


def plan(seed: int) -> Plan:
    """Return a plan in which a follower's links are so slow that it leaves the ISR, and it lacks just the last record
    when the leader dies. The next leader learns only later that this record is committed, and admits the follower by
    the high watermark that it knows. The slow follower and the leader that dies are no voters of the metadata quorum,
    so the controller stays.
    """
    rng = draw(seed, "14")
    far, leader = rng.sample((4, 5), 2)
    last_s = rng.uniform(2.0, 2.4)
    faults = [
        fault(0.1, 8.0, "latency", f"node:{far}", latency_ms=200, jitter_ms=10),
        fault(last_s + rng.uniform(0.2, 0.3), 4.0, "kill", f"node:{leader}"),
    ]
    sent_s = [last_s - 0.4 - 0.2 * n for n in range(6, -1, -1)] + [last_s]
    operations = [
        [round(at_s + 0.003 * index, 3), n % 2, "appends-0", index, 200]
        for n, at_s in enumerate(sent_s)
        for index in range(PARTITIONS)
    ]
    settings = {
        "broker.session.timeout.ms": "2400",
        "replica.lag.time.max.ms": "350",
        "replica.fetch.wait.max.ms": "350",
        "controller.quorum.request.timeout.ms": "1000",
        "controller.quorum.fetch.timeout.ms": "1500",
    }
    workload = {"partitions": PARTITIONS}
    return hunt_plan(seed, faults, nodes=5, settings=settings, operations=operations, workload=workload)


def client_visible_plan(seed: int) -> Plan:
    """Return a plan in which a follower is fenced and lacks just the last record. The other follower has this record,
    and becomes leader before it learns that the record is committed. The new leader lets the first follower join the
    ISR, but the response with the record is late. Then the new leader dies.
    """
    rng = draw(seed, "14: seen")
    faults = [
        seen.cut_from_controller(0.5, 1.85, seen.SECOND),
        seen.cut_fetches(1.6, 0.6, seen.SECOND, seen.FIRST),
        seen.late_fetches(1.7, 0.25, seen.THIRD, seen.FIRST, 300, "back"),
        seen.late_fetches(1.97, 2.0, seen.THIRD, seen.FIRST, 2500, "back"),
        fault(rng.uniform(2.08, 2.25), 6.0, "kill", f"node:{seen.FIRST}"),
        seen.late_fetches(1.9, 5.0, seen.SECOND, seen.THIRD, 4000, "back"),
        fault(rng.uniform(3.1, 3.4), 4.0, "kill", f"node:{seen.THIRD}"),
    ]
    settings = {"replica.fetch.wait.max.ms": "800", "replica.lag.time.max.ms": "6000"}
    operations = [*seen.until(1.3), *seen.one_for_each(1.75)]
    return seen.client_visible_plan(seed, faults, settings=settings, operations=operations)


MUTANT = Mutant(
    id="14",
    name="epoch-start-ignored",
    title="lets followers into the ISR that have not reached the start of the leader's epoch",
    source="KAFKA-7128",
    replaces=(ReplacedFunction(PartitionRules, "has_reached_isr", has_reached_isr),),
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
    client_visible_plan=client_visible_plan,
)
