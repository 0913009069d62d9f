"""Plants bugs of leaders and followers: truncation, fencing, and the high watermark."""

from __future__ import annotations

from random import Random

from squall.broker.log.log import Log
from squall.broker.log.results import FollowerAppendResult
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replication import (
    Divergence,
    Effects,
    EpochCachePort,
    Partition,
    TruncateFullyAndStartAt,
    truncation,
)
from squall.broker.replication.rules import PartitionRules
from squall.chaos.mutants import client_visible_plans as seen
from squall.chaos.mutants.hunt_plans import REBALANCING, fault, hunt_plan, killings_behind, somewhat_late
from squall.chaos.mutants.mutant import always, mutant
from squall.chaos.plans.plan import Plan

# The rules as they are while no mutant is planted.
SOUND_APPEND_AS_FOLLOWER = Log.append_as_follower
SOUND_NEXT_HIGH_WATERMARK = PartitionRules.next_high_watermark


def first_truncation(self: Partition, latest_epoch: int | None) -> int | None:
    """Return the high watermark, though this replica may have helped to commit records above it."""
    return self.high_watermark


@mutant(
    "1",
    "truncates a new follower's log to its high watermark",
    source="KAFKA-1211, KIP-101",
    replaces=[(PartitionRules, "first_truncation", first_truncation)],
    expected="truncation-keeps-committed strong-isr lost-write unseen inconsistent-offset",
    faults="kill latency",
)
def truncate_to_high_watermark(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders die in quick succession while followers learn the high watermark late."""
    return hunt_plan(seed, killings_behind(rng))


def divergence(
    self: Partition, epochs: EpochCachePort, last_fetched_epoch: int, fetch_offset: int
) -> Divergence | None:
    """Return a divergence only if the follower's log is too long, whatever the epoch of its last record is."""
    parted = truncation.divergence(epochs, last_fetched_epoch, fetch_offset, self.log_end_offset)
    if parted is None or parted.is_undefined or parted.end_offset < fetch_offset:
        return parted
    return None


def truncation_target(self: Partition, epochs: EpochCachePort, epoch: int, end_offset: int) -> int:
    """Return the end offset that the leader answered for `epoch`, even if the follower's log has no records of this
    epoch. The correct function then truncates to the end of an earlier epoch.
    """
    return min(end_offset, self.log_end_offset)


@mutant(
    "2",
    "truncates to the offset that the leader answered, whatever its epoch",
    source="KAFKA-6361, KIP-279",
    replaces=[(PartitionRules, "divergence", divergence), (PartitionRules, "truncation_target", truncation_target)],
    expected="log-matching committed-prefix batches-in-epochs replicas-agree inconsistent-offset duplicate "
    "replica-divergence",
    faults="kill latency",
)
def ignore_answered_epoch(seed: int, rng: Random) -> Plan:
    """Return a plan in which leadership moves to and fro between two logs that were never in sync: one broker dies, the
    other leads after an unclean election, and dies.
    """
    at_s, order = 0.5, rng.sample((1, 2, 3), 2)
    faults = [fault(0.2, 9.0, "latency", "all", latency_ms=rng.choice((20, 60, 120)), jitter_ms=20)]
    for turn in range(6):
        down_s = rng.uniform(0.9, 1.5)
        faults.append(fault(at_s, down_s, "kill", f"node:{order[turn % 2]}"))
        at_s += down_s * rng.uniform(0.6, 0.95) + rng.uniform(0.0, 0.4)
    return hunt_plan(
        seed,
        faults,
        settings={"unclean.leader.election.enable": "true"},
        workload={"replication_factor": 2, "min_isr": 1, "rate": 80},
    )


# The mutant also removes a check that came years later (KAFKA-18723) and would hide this bug: a follower refuses a
# batch whose epoch is above its leader's.
NEWEST = 2**31 - 1


def check_leader_epoch(self: Partition, request_epoch: int) -> ErrorCode:
    """Accept the request whatever its epoch is, as long as this broker takes itself for the leader."""
    return ErrorCode.NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER


def append_as_follower(self: Log, records: memoryview, leader_epoch: int) -> FollowerAppendResult:
    """Append the batches without comparing their epochs with the leader's."""
    return SOUND_APPEND_AS_FOLLOWER(self, records, NEWEST)


def client_visible_plan_3(seed: int, rng: Random) -> Plan:
    """Return a plan in which leadership moves from replica FIRST to SECOND and back to FIRST, in three leader epochs.
    The follower THIRD learns of each change late.

    In the third epoch THIRD still fetches as in the first, and FIRST counts it as in sync. Then THIRD learns of the
    second epoch. SECOND does not know that it was replaced, so THIRD truncates acknowledged records to match SECOND's
    log. THIRD is in the ISR when FIRST dies.
    """
    faults = [
        seen.late_metadata(0.4, 9.0, seen.THIRD, rng.choice((1600, 1800, 2000, 2200))),
        seen.cut_from_controller(0.5, 1.5, seen.FIRST),
        seen.cut_from_controller(3.6, 5.0, seen.SECOND),
        fault(rng.uniform(5.3, 6.4), 3.0, "kill", f"node:{seen.FIRST}"),
    ]
    settings = {**seen.PATIENT_WITH_CONTROLLER, "replica.lag.time.max.ms": "20000"}
    return seen.client_visible_plan(seed, faults, settings=settings)


@mutant(
    "3",
    "serves fetches of every leader epoch",
    source="KAFKA-7395, KIP-320",
    replaces=[
        (PartitionRules, "check_leader_epoch", check_leader_epoch),
        (Log, "append_as_follower", append_as_follower),
    ],
    expected="epoch-cache committed-prefix strong-isr lost-write unseen inconsistent-offset nonmonotonic-poll "
    "poll-skip",
    faults="pause partition",
    client_visible_plan=client_visible_plan_3,
)
def no_fencing_of_fetches(seed: int, rng: Random) -> Plan:
    """Return a plan that pauses leaders, or cuts them off from the controller, while the other brokers continue; then
    the leaders come back.
    """
    at_s, faults = 0.3, []
    for _ in range(5):
        node = f"node:{rng.randint(1, 3)}"
        if rng.random() < 0.5:
            length_s = rng.uniform(0.7, 1.6)
            faults.append(fault(at_s, length_s, "pause", node))
        else:
            length_s = rng.uniform(1.6, 2.4)
            faults.append(fault(at_s, length_s, "partition", node, shape="one-way", manner="hold"))
        at_s += length_s + rng.uniform(0.3, 1.0)
    return hunt_plan(seed, faults, settings=REBALANCING, workload={"rate": 15})


def diverged(self: Partition, epochs: EpochCachePort, epoch: int, end_offset: int) -> Effects:
    """Discard the log and begin an empty one at its start offset, where the correct function truncates."""
    return (TruncateFullyAndStartAt(self.log_start_offset, "the leader's log is another"),)


def out_of_range(self: Partition, leader_log_start: int, leader_log_end: int) -> Effects:
    """Discard the log and begin an empty one at the leader's log start offset. The correct function only truncates a
    log that is longer than the leader's.
    """
    return (TruncateFullyAndStartAt(leader_log_start, f"the leader's log starts at {leader_log_start}"),)


def client_visible_plan_8(seed: int, rng: Random) -> Plan:
    """Return a plan in which the leader dies, and the follower with fewer records is elected. The other follower, which
    is in the ISR, deletes its log. The responses with which it would copy all records again are late: the new leader
    dies before they arrive.
    """
    faults = [
        seen.cut_fetches(1.0, 1.0, seen.SECOND, seen.FIRST),
        fault(rng.uniform(1.2, 1.5), 6.0, "kill", f"node:{seen.FIRST}"),
        seen.late_fetches(1.6, 4.0, seen.THIRD, seen.SECOND, 1500, "back"),
        fault(rng.uniform(3.7, 4.2), 2.5, "kill", f"node:{seen.SECOND}"),
    ]
    # Longer than the cuts: a follower that gets no records stays in the ISR.
    return seen.client_visible_plan(seed, faults, settings={"replica.lag.time.max.ms": "6000"})


@mutant(
    "8",
    "wipes a log that is longer than the leader's",
    source="KAFKA-2143",
    replaces=[(Partition, "diverged", diverged), (Partition, "out_of_range", out_of_range)],
    expected="truncation-keeps-committed strong-isr lost-write unseen",
    faults="kill latency",
    client_visible_plan=client_visible_plan_8,
)
def too_new_as_too_old(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders die while their followers' logs have different lengths."""
    return hunt_plan(seed, killings_behind(rng, most_ms=40))


@mutant(
    "18",
    "is configured with acks=1, and called safe",
    source="acks=1",
    expected="lost-write unseen",
    faults="kill latency",
)
def acks_one(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders die."""
    workload = {"acks": 1, "idempotence": False, "max_in_flight": 1}
    return hunt_plan(seed, killings_behind(rng, rounds=3, most_ms=40), workload=workload, expect="safe")


def client_visible_plan_24(seed: int, rng: Random) -> Plan:
    """Return a plan in which a follower leaves the ISR and joins it again. The leader learns both changes from
    AlterPartition responses, and again, late, from metadata. By then the follower is cut off from the leader.

    The leader applies the outdated removal again, and commits records without the follower. Then the leader dies. The
    controller still counts the follower as in sync.
    """
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


@mutant(
    "24",
    "applies leaderships and ISRs that are older than what is in force",
    source="KAFKA-9539, KIP-570",
    replaces=[(PartitionRules, "is_stale_state", always(False)), (PartitionRules, "is_stale_stop", always(False))],
    expected="epochs-monotone isr-superset strong-isr lost-write unseen inconsistent-offset",
    faults="latency",
    client_visible_plan=client_visible_plan_24,
)
def old_states_applied(seed: int, rng: Random) -> Plan:
    """Return a plan in which followers leave and join the ISR all the time, over slow links. So a leader often gets the
    controller's decisions late or out of order, in AlterPartition responses and in metadata, and sends new
    AlterPartition requests meanwhile.
    """
    latency_ms = rng.randint(20, 40)
    slow = fault(0.1, 5.0, "latency", "all", latency_ms=latency_ms, jitter_ms=latency_ms * 3 // 4)
    settings = {
        "replica.lag.time.max.ms": str(rng.choice((60, 80, 100))),
        "replica.fetch.wait.max.ms": "20",
        "replica.fetch.backoff.ms": "20",
    }
    return hunt_plan(seed, [slow], settings=settings, workload={"rate": 120, "partitions": 6})


def next_high_watermark(self: Partition, now_ms: int) -> int:
    """Keep the high watermark, waiting for followers that do not exist."""
    return SOUND_NEXT_HIGH_WATERMARK(self, now_ms) if self.followers else self.high_watermark


@mutant(
    "68",
    "never moves the high watermark of a partition without followers",
    source="Redpanda PR 17823 (2024)",
    replaces=[(PartitionRules, "next_high_watermark", next_high_watermark)],
    expected="replicas-agree stuck-producer stuck-consumer not-converged lost-write unseen",
    faults="latency",
)
def lone_replica_stands_still(seed: int, rng: Random) -> Plan:
    """Return a plan with one replica and acks=1."""
    alone = {"replication_factor": 1, "min_isr": 1, "acks": 1, "idempotence": False}
    return hunt_plan(seed, somewhat_late(seed, "68"), workload=alone)
