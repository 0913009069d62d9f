"""Plants bugs of in-sync replicas: who is admitted, who is waited for, and how many must be left."""

from __future__ import annotations

from functools import partial
from random import Random

from squall.broker.cluster.image import ClusterImage
from squall.broker.controller import isr
from squall.broker.replication import Partition
from squall.broker.replication.replica import FollowerReplicaState
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants import client_visible_plans as seen
from squall.chaos.mutants.hunt_plans import ELIGIBLE, fault, hunt_plan, killings
from squall.chaos.mutants.mutant import always, mutant
from squall.chaos.plans.plan import Plan


def maximal_of_9(self: Partition, committed: tuple[int, ...], proposed: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ISR for which the leader waits: the proposed one, even if it is smaller than the committed one."""
    added = tuple(broker_id for broker_id in proposed if broker_id not in committed)
    return committed + added if added else proposed


@mutant(
    "9",
    "does not wait for those about to leave the ISR before that is confirmed",
    source="KIP-497",
    replaces=[(PartitionRules, "maximal_of", maximal_of_9)],
    expected="weak-isr isr-superset valid-high-watermark strong-isr lost-write unseen inconsistent-offset",
    faults="partition",
)
def unconfirmed_shrink(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders are cut off from their peers, but not from their clients. A leader then wants to
    remove its followers from the ISR (replica.lag.time.max.ms) before its own broker session is over.
    """
    at_s, faults = 0.3, []
    for _ in range(3):
        length_s = rng.uniform(1.8, 2.6)
        manner = rng.choice(("hold", "drop"))
        faults.append(fault(at_s, length_s, "partition", f"node:{rng.randint(1, 3)}", shape="isolate", manner=manner))
        at_s += length_s + rng.uniform(0.8, 1.5)
    settings = {"replica.lag.time.max.ms": "300", "broker.session.timeout.ms": "900"}
    return hunt_plan(seed, faults, settings=settings, workload={"min_isr": 1})


def maximal_of_10(self: Partition, committed: tuple[int, ...], proposed: tuple[int, ...]) -> tuple[int, ...]:
    """Return the committed ISR only. The correct function adds the replicas that the leader has proposed to add,
    because the controller may have added them already.
    """
    return committed


def client_visible_plan_10(seed: int, rng: Random) -> Plan:
    """Return a plan in which a follower joins, and its leader never learns that the controller has agreed. The follower
    gets no more records; its leader continues without it and dies.
    """
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


@mutant(
    "10",
    "does not wait for those about to join the ISR",
    source="KIP-497",
    replaces=[(PartitionRules, "maximal_of", maximal_of_10)],
    expected="isr-superset valid-high-watermark strong-isr lost-write unseen inconsistent-offset",
    faults="pause latency",
    client_visible_plan=client_visible_plan_10,
)
def pending_member_omitted(seed: int, rng: Random) -> Plan:
    """Return a plan in which a paused follower joins the ISR again. Its leader learns this some time after the
    controller has decided it, and records arrive meanwhile.
    """
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


def client_visible_plan_11(seed: int, rng: Random) -> Plan:
    """Return a plan in which a leader's request to add a follower to the ISR is late. The leader sends it again, and
    the follower joins, gets no more records, and leaves. Then the late request adds the follower again. The leader does
    not learn that, continues without the follower, and dies.
    """
    faults = [
        seen.cut_fetches(0.6, 0.8, seen.SECOND, seen.FIRST),
        seen.late_proposals(1.35, 0.4, seen.FIRST, 1800, "there"),
        seen.cut_fetches(2.3, 5.0, seen.SECOND, seen.FIRST),
        seen.late_metadata(2.9, 3.0, seen.FIRST, 4000),
        fault(rng.uniform(3.4, 3.7), 3.0, "kill", f"node:{seen.FIRST}"),
    ]
    settings = {
        "replica.lag.time.max.ms": "200",
        "broker.session.timeout.ms": "1000",
        "controller.quorum.fetch.timeout.ms": "6000",
    }
    return seen.client_visible_plan(seed, faults, settings=settings)


@mutant(
    "11",
    "applies ISR changes made from an older state of the partition",
    source="KIP-497",
    replaces=[(isr, "check_partition_epoch", always(None))],
    expected="strong-isr valid-high-watermark isr-superset leader-completeness lost-write unseen inconsistent-offset",
    faults="protocol pause",
    client_visible_plan=client_visible_plan_11,
)
def partition_epoch_ignored(seed: int, rng: Random) -> Plan:
    """Return a plan in which a leader's request to add a follower to the ISR is late. The leader sends it again, and
    the follower joins, lags and leaves the ISR. Then the late request arrives.
    """
    faults = []
    for turn in range(4):
        at_s, node = 0.3 + 3.0 * turn, f"node:{rng.randint(1, 3)}"
        faults.append(fault(at_s, 0.6, "pause", node))
        late_ms = rng.randint(600, 1000)
        faults.append(
            fault(at_s + 0.5, 0.7, "protocol", "all", api="AlterPartition", act="delay", delay_ms=late_ms, side="peers")
        )
        faults.append(fault(at_s + rng.uniform(0.8, 1.0), 0.7, "pause", node))
    settings = {"replica.lag.time.max.ms": "200", "broker.session.timeout.ms": "1000"}
    return hunt_plan(seed, faults, settings=settings, workload={"rate": 60})


def is_available(image: ClusterImage, broker_id: int) -> bool:
    """Return True for any registered broker, even if it is fenced or shutting down."""
    return broker_id in image.brokers


def client_visible_plan_12(seed: int, rng: Random) -> Plan:
    """Return a plan in which a follower is fenced, and is wrongly admitted to the ISR. The other replicas die, so that
    the fenced follower is the last member of the ISR. Then it loses its power, and is elected with what is left of its
    log.
    """
    faults = [
        seen.cut_from_controller(0.5, 3.2, seen.SECOND),
        fault(rng.uniform(1.7, 1.9), 8.0, "kill", f"node:{seen.THIRD}"),
        fault(rng.uniform(2.7, 2.9), 3.5, "kill", f"node:{seen.FIRST}"),
        fault(3.6, 0.4, "power_loss", f"node:{seen.SECOND}"),
    ]
    return seen.client_visible_plan(seed, faults, settings=seen.NO_ELIGIBLE)


@mutant(
    "12",
    "lets fenced and stopping brokers into the ISR",
    source="KAFKA-13916, KIP-841",
    replaces=[(isr, "is_available", is_available), (PartitionRules, "is_in_service", always(True))],
    expected="isr-joins-in-service valid-decision strong-isr lost-write unseen",
    faults="stop latency",
    client_visible_plan=client_visible_plan_12,
)
def fenced_admitted(seed: int, rng: Random) -> Plan:
    """Return a plan with a rolling restart by controlled shutdown, over slow links."""
    stops = killings(rng, rounds=4, action="stop")
    slow = fault(0.0, stops[-1]["at_s"], "latency", "all", latency_ms=rng.choice((5, 20, 50)), jitter_ms=5)
    return hunt_plan(seed, [slow, *stops])


def client_visible_plan_13(seed: int, rng: Random) -> Plan:
    """Return a plan in which a follower's fetches are late, and it loses its power. After its restart it fetches from
    the new end of its log, and waits for the responses. Then the late fetches from before let it join the ISR, and its
    leader dies.
    """
    faults = [
        seen.late_fetches(1.7, 0.4, seen.SECOND, seen.FIRST, 3300, "there"),
        fault(2.6, 0.3, "power_loss", f"node:{seen.SECOND}"),
        seen.late_fetches(2.75, 5.0, seen.SECOND, seen.FIRST, 6000, "back"),
        fault(rng.uniform(5.3, 5.7), 3.0, "kill", f"node:{seen.FIRST}"),
    ]
    settings = {
        "replica.socket.timeout.ms": "300",
        "replica.lag.time.max.ms": "5000",
        "max.incremental.fetch.session.cache.slots": "0",
    }
    return seen.client_visible_plan(seed, faults, settings=settings, operations=seen.until(1.6))


@mutant(
    "13",
    "lets a broker into the ISR by what an earlier incarnation of it held",
    source="KAFKA-14617, KIP-903",
    replaces=[
        (isr, "is_same_incarnation", always(True)),
        (PartitionRules, "is_same_incarnation", always(True)),
        (PartitionRules, "is_stale_fetch", always(False)),
    ],
    expected="strong-isr valid-high-watermark leader-completeness lost-write unseen",
    faults="power_loss protocol latency",
    client_visible_plan=client_visible_plan_13,
)
def earlier_incarnation_admitted(seed: int, rng: Random) -> Plan:
    """Return a plan in which a follower's fetch is late, so that the follower fetches again over another connection.
    Then the follower loses its power. When the late fetch arrives, the follower has restarted and has lost many
    records. Its link to the leader is slow, and no more records are written meanwhile.
    """
    node, last_s = f"node:{rng.randint(1, 3)}", 2.0
    late = {"act": "delay", "delay_ms": rng.randint(1300, 1900), "count": 3, "side": "peers"}
    faults = [
        fault(0.1, 8.0, "latency", node, latency_ms=30, jitter_ms=2),
        fault(last_s - 0.02, 0.2, "protocol", "leader:appends-0-0", api="Fetch", **late),
        fault(last_s + rng.uniform(0.5, 0.6), 0.3, "power_loss", node),
    ]
    operations = [[round(last_s - 0.1 * n, 3), n % 2, "appends-0", 0, 200] for n in range(20, -1, -1)]
    settings = {
        # One batch in each response: the restarted follower needs long to catch up.
        "replica.fetch.max.bytes": "1",
        "replica.lag.time.max.ms": "5000",
        "replica.socket.timeout.ms": "300",
        # Without sessions: a late fetch of a session would be refused for its epoch (KIP-227).
        "max.incremental.fetch.session.cache.slots": "0",
        "controller.quorum.fetch.timeout.ms": "4000",
        "controller.quorum.request.timeout.ms": "3000",
    }
    return hunt_plan(seed, faults, settings=settings, operations=operations, workload={"partitions": 1})


PARTITIONS = 10


def has_reached_isr(self: Partition, replica: FollowerReplicaState) -> bool:
    """Return True once the follower's log reaches the leader's high watermark, even if it does not reach the start of
    the leader's epoch.
    """
    return replica.log_end_offset >= self.high_watermark


def client_visible_plan_14(seed: int, rng: Random) -> Plan:
    """Return a plan in which a follower is fenced and lacks just the last record. The other follower has this record,
    and becomes leader before it learns that the record is committed. The new leader lets the first follower join the
    ISR, but the response with the record is late. Then the new leader dies.
    """
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


@mutant(
    "14",
    "lets followers into the ISR that have not reached the start of the leader's epoch",
    source="KAFKA-7128",
    replaces=[(PartitionRules, "has_reached_isr", has_reached_isr)],
    expected="strong-isr valid-high-watermark leader-completeness lost-write unseen inconsistent-offset",
    faults="kill latency",
    client_visible_plan=client_visible_plan_14,
)
def epoch_start_ignored(seed: int, rng: Random) -> Plan:
    """Return a plan in which a follower's links are so slow that it leaves the ISR, and it lacks just the last record
    when the leader dies. The next leader learns only later that this record is committed, and admits the follower by
    the high watermark that it knows. The slow follower and the leader that dies are no voters of the metadata quorum,
    so the controller stays.
    """
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


def alone_by_a_cut(seed: int, rng: Random) -> Plan:
    """Return a plan that cuts all followers off from a leader, which dies meanwhile. Readers get records that the next
    leader does not have.

    The followers run and are eligible (KIP-966), so that one of them is elected at once. A correct leader has committed
    nothing without them: so the plan accepts no loss.
    """
    at_s, faults = 0.5, []
    for _ in range(2):
        leader = rng.choice((1, 2, 3))
        faults.append(fault(at_s, 3.4, "partition", f"node:{leader}", side="replication"))
        faults.append(fault(at_s + rng.uniform(1.6, 2.2), 0.9, "kill", f"node:{leader}"))
        at_s += 5.5
    return hunt_plan(seed, faults, settings=ELIGIBLE, workload={"rate": 300, "readers": 2}, expect="safe")


@mutant(
    "15",
    "moves the high watermark while the ISR is below its minimum",
    source="KAFKA-15583, KIP-966",
    replaces=[(PartitionRules, "is_high_watermark_frozen", always(False))],
    expected="strong-isr hw-held-by-min-isr unseen inconsistent-offset lost-write",
    faults="pause power_loss",
    client_visible_plan=alone_by_a_cut,
)
def commits_below_min_isr(seed: int, rng: Random) -> Plan:
    """Return a plan in which both followers are paused until the leader is alone in the ISR; then the leader loses its
    power.
    """
    at_s, faults = 0.4, []
    for _ in range(2):
        first, second, leader = rng.sample((1, 2, 3), 3)
        length_s = rng.uniform(1.6, 2.2)
        faults.append(fault(at_s, length_s, "pause", f"node:{first}"))
        faults.append(fault(at_s + rng.uniform(0.7, 1.0), length_s, "pause", f"node:{second}"))
        at_s += 2 * length_s + 0.5
        faults.append(fault(at_s - length_s * rng.uniform(0.4, 0.7), 0.8, "power_loss", f"node:{leader}"))
        at_s += 1.5
    return hunt_plan(seed, faults, settings=ELIGIBLE)


@mutant(
    "18b",
    "is configured with min.insync.replicas=1, and called safe",
    source="min.insync.replicas=1",
    expected="lost-write unseen",
    faults="pause power_loss",
)
def min_isr_one(seed: int, rng: Random) -> Plan:
    """Return a plan in which followers are paused until the leader is alone in the ISR; then the leader loses its
    power.
    """
    at_s, faults = 0.4, []
    for _ in range(3):
        leader = rng.randint(1, 3)
        held_s = rng.uniform(1.4, 2.0)
        faults.append(fault(at_s, held_s, "pause", f"node:{leader % 3 + 1}"))
        faults.append(fault(at_s + held_s - 0.1, 0.8, "power_loss", f"node:{leader}"))
        at_s += held_s + 2.0
    return hunt_plan(seed, faults, workload={"replication_factor": 2, "min_isr": 1}, expect="safe")


@mutant(
    "20",
    "acknowledges acks=all with fewer in-sync replicas than min.insync.replicas",
    source="min.insync.replicas; NOT_ENOUGH_REPLICAS (19), NOT_ENOUGH_REPLICAS_AFTER_APPEND (20)",
    replaces=[
        (PartitionRules, "under_min_isr_before_append", always(False)),
        (PartitionRules, "under_min_isr_after", always(False)),
        (PartitionRules, "is_high_watermark_frozen", always(False)),
    ],
    expected="strong-isr acknowledged-is-replicated hw-held-by-min-isr lost-write unseen",
    faults="pause power_loss",
    client_visible_plan=alone_by_a_cut,
)
def min_isr_unchecked(seed: int, rng: Random) -> Plan:
    """Return the plan of mutant 15: the leader is alone in the ISR, and then loses its power. With this bug the leader
    has acknowledged records while it was alone.
    """
    return commits_below_min_isr.plan(seed)


STILL = "the high watermark stands still below min ISR (KAFKA-15583), so nothing is acknowledged there anyway"
no_check = partial(mutant, expected="lost-write unseen", faults="pause power_loss", masked=STILL)


@no_check(
    "20a",
    "appends although the ISR is too small",
    source="error 19",
    replaces=[(PartitionRules, "under_min_isr_before_append", always(False))],
)
def no_check_before(seed: int, rng: Random) -> Plan:
    """Return the plan of mutant 15."""
    return commits_below_min_isr.plan(seed)


@no_check(
    "20b",
    "acknowledges although the ISR has shrunk",
    source="error 20",
    replaces=[(PartitionRules, "under_min_isr_after", always(False))],
)
def no_check_after(seed: int, rng: Random) -> Plan:
    """Return the plan of mutant 15."""
    return commits_below_min_isr.plan(seed)
