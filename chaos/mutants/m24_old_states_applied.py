"""Plants KAFKA-9539 (KIP-570): brokers apply outdated decisions of the control plane again."""

from __future__ import annotations

from squall.broker.replication import LeaderAndIsr, Partition
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants import client_visible_plans as seen
from squall.chaos.mutants.hunt_plans import draw, fault, hunt_plan
from squall.chaos.mutants.mutant import Mutant, ReplacedFunction
from squall.chaos.plans.plan import Plan


def is_stale_state(self: Partition, state: LeaderAndIsr) -> bool:
    """Return False: apply every leadership and ISR that the control plane sends, even an outdated one."""
    return False


def is_stale_stop(self: Partition, leader_epoch: int) -> bool:
    """Return False: obey every order to stop the replica, even one from an older leader epoch."""
    return False


def plan(seed: int) -> Plan:
    """Return a plan in which followers leave and join the ISR all the time, over slow links. So a leader often gets the
    controller's decisions late or out of order, in AlterPartition responses and in metadata, and sends new
    AlterPartition requests meanwhile.
    """
    rng = draw(seed, "24")
    latency_ms = rng.randint(20, 40)
    slow = fault(0.1, 5.0, "latency", "all", latency_ms=latency_ms, jitter_ms=latency_ms * 3 // 4)
    settings = {
        "replica.lag.time.max.ms": str(rng.choice((60, 80, 100))),
        "replica.fetch.wait.max.ms": "20",
        "replica.fetch.backoff.ms": "20",
    }
    return hunt_plan(seed, [slow], settings=settings, workload={"rate": 120, "partitions": 6})


def client_visible_plan(seed: int) -> Plan:
    """Return a plan in which a follower leaves the ISR and joins it again. The leader learns both changes from
    AlterPartition responses, and again, late, from metadata. By then the follower is cut off from the leader.

    The leader applies the outdated removal again, and commits records without the follower. Then the leader dies. The
    controller still counts the follower as in sync.
    """
    rng = draw(seed, "24: seen")
    cut_s = 2.1 + rng.uniform(0.15, 0.3)
    faults = [
        seen.late_metadata(0.3, 7.0, seen.FIRST, rng.choice((1000, 1200, 1400))),
        seen.cut_fetches(0.6, 1.5, seen.SECOND, seen.FIRST),
        seen.cut_fetches(cut_s, 4.0, seen.SECOND, seen.FIRST),
        seen.late_proposals(cut_s, 4.0, seen.FIRST, 6000, "there"),
        fault(cut_s + rng.uniform(1.0, 1.8), 3.0, "kill", f"node:{seen.FIRST}"),
    ]
    settings = {"replica.lag.time.max.ms": "200", "broker.session.timeout.ms": "1000"}
    return seen.client_visible_plan(seed, faults, settings={**seen.PATIENT_WITH_CONTROLLER, **settings})


MUTANT = Mutant(
    id="24",
    name="old-states-applied",
    title="applies leaderships and ISRs that are older than what is in force",
    source="KAFKA-9539, KIP-570",
    replaces=(
        ReplacedFunction(PartitionRules, "is_stale_state", is_stale_state),
        ReplacedFunction(PartitionRules, "is_stale_stop", is_stale_stop),
    ),
    expected=("epochs-monotone", "isr-superset", "strong-isr", "lost-write", "unseen", "inconsistent-offset"),
    faults=("latency",),
    plan=plan,
    client_visible_plan=client_visible_plan,
)
