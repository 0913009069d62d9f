"""Plants bugs of files on disk: leader epochs, recovery, and durability."""

from __future__ import annotations

import struct
from bisect import bisect_right
from operator import itemgetter
from random import Random

from squall.broker.control.kraft.quorum_storage import QuorumStorage
from squall.broker.env import Fs
from squall.broker.log import arrivals, checkpoints, log, recovery, scan
from squall.broker.log.checkpoints import RECOVERY_POINTS
from squall.broker.log.config import LONG_MAX
from squall.broker.log.durability import DurabilityTracker, FlushJob
from squall.broker.log.epochs import UNDEFINED, EpochCache
from squall.broker.log.log import Log
from squall.broker.log.manager import LogManager
from squall.broker.log.results import FollowerAppendResult
from squall.broker.log.scan import LocatedBatch
from squall.broker.protocol.records import BatchHeader, batches
from squall.broker.quorum.state import QuorumState
from squall.chaos.mutants import client_visible_plans as seen
from squall.chaos.mutants.hunt_plans import REBALANCING, fault, hunt_plan, killings
from squall.chaos.mutants.mutant import always, mutant
from squall.chaos.plans.plan import Plan

# The rules as they are while no mutant is planted.
SOUND_TRUNCATE_TO = Log.truncate_to
SOUND_CHECKED_BATCHES = arrivals.checked_batches
SOUND_DONE = DurabilityTracker.done
SOUND_APPEND_AS_FOLLOWER = Log.append_as_follower


def replace_unsynced(fs: Fs, path: str, data: bytes) -> None:
    """Replace a file as `checkpoints.replace_file` does, but without any fsync: after a power loss the file may hold
    anything.
    """
    temporary = path + ".tmp"
    file = fs.open(temporary, create=True, truncate=True)
    try:
        file.append(data)
    finally:
        file.close()
    fs.rename(temporary, path)


def end_offset_for(self: EpochCache, epoch: int, log_end_offset: int) -> tuple[int, int]:
    """Do what the correct function does, but return the log's end for an epoch above or below all known epochs."""
    if epoch < 0:
        return UNDEFINED
    following = bisect_right(self.entries, epoch, key=itemgetter(0))
    if following == 0 or following == len(self.entries):
        return epoch, log_end_offset
    return self.entries[following - 1][0], self.entries[following][1]


@mutant(
    "4",
    "answers for an epoch that it does not know with its log's end",
    source="KAFKA-6857",
    replaces=[(EpochCache, "end_offset_for", end_offset_for)],
    expected="committed-prefix strong-isr epoch-cache replicas-agree inconsistent-offset not-converged "
    "replica-divergence",
    faults="partition kill",
)
def undefined_epoch_as_log_end(seed: int, rng: Random) -> Plan:
    """Return a plan in which the first leaders write their first records without a follower, and brokers with empty
    logs lead after them.
    """
    node = f"node:{rng.randint(1, 3)}"
    faults = [
        fault(0.0, rng.uniform(1.8, 2.6), "partition", node, shape="isolate", manner=rng.choice(("drop", "refuse"))),
        fault(3.5, rng.uniform(0.8, 1.2), "kill", f"node:{rng.randint(1, 3)}"),
    ]
    return hunt_plan(seed, faults, warmup_s=0.0, workload={"partitions": 6, "rate": 60})


def has_epoch(header: BatchHeader) -> bool:
    """Return True only for epochs above 0."""
    return header.leader_epoch > 0


def client_visible_plan_5(seed: int, rng: Random) -> Plan:
    """Return a plan in which a follower restarts and truncates to its high watermark, which was never checkpointed.
    Before it has copied records again the other replicas die, and an unclean election makes it the leader. A correct
    follower still has all records: nothing was written since it died.
    """
    faults = [
        fault(2.2, 0.3, "kill", f"node:{seen.THIRD}"),
        seen.late_fetches(2.3, 6.0, seen.THIRD, seen.FIRST, 6000, "back"),
        seen.late_fetches(2.3, 6.0, seen.THIRD, seen.SECOND, 6000, "back"),
        fault(rng.uniform(3.3, 3.6), 3.0, "kill", f"node:{seen.FIRST}"),
        fault(3.7, 3.0, "kill", f"node:{seen.SECOND}"),
    ]
    settings = {"unclean.leader.election.enable": "true", "replica.high.watermark.checkpoint.interval.ms": "60000"}
    return seen.client_visible_plan(seed, faults, settings=settings, operations=seen.until(1.6))


@mutant(
    "5",
    "forgets epoch 0 when it recovers a log",
    source="KAFKA-10432",
    replaces=[(recovery, "has_epoch", has_epoch)],
    expected="truncation-keeps-committed epoch-cache batches-in-epochs inconsistent-offset replica-divergence",
    faults="kill power_loss",
    client_visible_plan=client_visible_plan_5,
)
def epoch_zero_skipped(seed: int, rng: Random) -> Plan:
    """Return a plan in which nodes die, or lose power, while their logs contain only epoch 0."""
    return hunt_plan(seed, killings(rng, rounds=2, action=rng.choice(("kill", "power_loss"))))


def flush_6(self: EpochCache) -> None:
    """Replace the file of leader epochs, and mark it as written before it is synced."""
    rows = [f"{epoch} {start}" for epoch, start in self.entries]
    replace_unsynced(self._fs, self._path, "\n".join(["0", str(len(rows)), *rows, ""]).encode())
    self.dirty = False


@mutant(
    "6",
    "does not sync the leader epochs' file",
    source="KAFKA-16541",
    replaces=[(EpochCache, "flush", flush_6)],
    expected="epoch-durable-before-append epoch-cache batches-in-epochs inconsistent-offset replica-divergence",
    faults="power_loss",
    unseen="most files are damaged, and made again from the batches. One that is torn in its last number lets an epoch "
    "begin too early: then a follower outside of the ISR truncates too much, and copies it again",
)
def unsynced_epochs(seed: int, rng: Random) -> Plan:
    """Return a plan with power losses after leader changes. Segments are so small that most of them lie before the
    recovery point. Recovery does not scan these: it trusts the file of leader epochs instead.
    """
    settings = {"log.segment.bytes": "1024", "log.flush.interval.messages": "1"}
    workload = {"rate": 40, "partitions": 2}
    return hunt_plan(seed, killings(rng, rounds=5, action="power_loss"), settings=settings, workload=workload)


def flush_7(self: EpochCache) -> None:
    """Write the leader epochs to the file, and then overwrite the file with all of them but the newest."""
    checkpoints.write_epochs(self._fs, self._path, self.entries)
    if len(self.entries) > 1:
        checkpoints.write_epochs(self._fs, self._path, self.entries[:-1])
    self.dirty = False


def client_visible_plan_7(seed: int, rng: Random) -> Plan:
    """Return a plan in which replica FIRST, the leader, dies with records that no other replica has. SECOND leads,
    writes other records in their place, and is soon alone in the ISR. SECOND is restarted and leads again, but has
    forgotten the epoch of its records.

    FIRST comes back. SECOND's answers do not make FIRST truncate its old records. Then FIRST leads again, because it is
    the preferred leader, and serves these records.
    """
    faults = [
        seen.cut_fetches(0.8, 1.0, seen.SECOND, seen.FIRST),
        seen.cut_fetches(0.8, 1.0, seen.THIRD, seen.FIRST),
        fault(1.3, 3.6, "kill", f"node:{seen.FIRST}"),
        fault(rng.uniform(2.9, 3.1), 7.0, "stop", f"node:{seen.THIRD}"),
        fault(rng.uniform(3.5, 3.7), 0.5, "stop", f"node:{seen.SECOND}"),
    ]
    load = {**seen.ONE_BY_ONE, "producers": 6, "rate": 400}
    return seen.client_visible_plan(seed, faults, settings=REBALANCING, workload=load)


@mutant(
    "7",
    "lets an older snapshot of the leader epochs overwrite a newer one",
    source="KAFKA-17142",
    replaces=[(EpochCache, "flush", flush_7)],
    expected="epoch-durable-before-append epoch-cache batches-in-epochs truncation-keeps-committed inconsistent-offset "
    "replica-divergence",
    faults="stop",
    client_visible_plan=client_visible_plan_7,
)
def stale_epochs_written(seed: int, rng: Random) -> Plan:
    """Return a plan with controlled restarts, after which brokers trust the file of leader epochs."""
    return hunt_plan(seed, killings(rng, rounds=4, action="stop"))


@mutant(
    "16",
    "takes an unclean stop for a clean one",
    source="KAFKA-10471, KAFKA-15375",
    replaces=[(LogManager, "_ended_cleanly", always(True))],
    expected="loaded-log-is-whole committed-prefix recovery-keeps-committed epoch-cache batches-in-epochs corrupt "
    "lost-write unseen replica-divergence",
    faults="power_loss",
)
def unclean_stop_as_clean(seed: int, rng: Random) -> Plan:
    """Return a plan with power losses under a load of large records, most of which are synced. The last write but one
    is torn: only its beginning is left. The last write is whole and follows it, so that the end of the log looks
    intact.
    """
    workload = {"rate": 60, "min_bytes": 3000, "max_bytes": 9000, "topic_settings": {"flush.messages": "3"}}
    return hunt_plan(seed, killings(rng, rounds=4, action="power_loss"), workload=workload)


@mutant(
    "19",
    "is configured without fsync, and called safe where all nodes lose power",
    source="log.flush.interval.messages unset",
    expected="lost-write unseen",
    faults="power_loss",
)
def no_fsync(seed: int, rng: Random) -> Plan:
    """Return a plan in which all nodes lose their power at once."""
    faults = [fault(at_s + rng.random(), 0.8, "power_loss", "all") for at_s in (0.5, 4.0)]
    return hunt_plan(seed, faults, expect="safe")


def persist(self: QuorumStorage, state: QuorumState) -> None:
    """Write the vote without syncing it."""
    text = state.to_json(self._settings.voters, self._cluster_id)
    replace_unsynced(self._env.fs, self._state_path, text.encode())


def client_visible_plan_19b(seed: int, rng: Random) -> Plan:
    """Return the plan `voters_lose_power` with more power losses. A broker that finds only half of its unsynced vote
    does not start. If this happens to two of the three voters, no leader can be elected.
    """
    return voters_lose_power(seed, rng, 12)


@mutant(
    "19b",
    "does not sync its vote before it answers",
    source="Raft; KIP-595",
    replaces=[(QuorumStorage, "persist", persist)],
    expected="vote-durable-before-told one-vote-per-epoch quorum-epoch-monotone one-controller-per-epoch lost-write "
    "unseen stuck-producer stuck-consumer",
    faults="power_loss",
    client_visible_plan=client_visible_plan_19b,
)
def unsynced_vote(seed: int, rng: Random) -> Plan:
    """Return the plan `voters_lose_power`."""
    return voters_lose_power(seed, rng, 6)


def voters_lose_power(seed: int, rng: Random, rounds: int) -> Plan:
    """Return a plan with elections of the quorum, and so many power losses of voters in the middle of elections."""
    at_s, faults = 0.5, []
    for _ in range(rounds):
        faults.append(fault(at_s, rng.uniform(0.3, 0.7), "power_loss", f"node:{rng.randint(1, 3)}"))
        at_s += rng.uniform(1.0, 1.4)
    return hunt_plan(seed, faults, workload={"rate": 50})


def truncate_to(self: Log, offset: int) -> bool:
    """Truncate the log, but keep its producer state: a batch that was removed counts as a duplicate when it is sent
    again.
    """
    known = self.producers
    cut = SOUND_TRUNCATE_TO(self, offset)
    self.producers = known
    return cut


@mutant(
    "53",
    "acknowledges a resent batch as known after its own copy was truncated",
    source="Redpanda #5355, PR 5356; KAFKA-14034",
    replaces=[(Log, "truncate_to", truncate_to)],
    expected="producer-state-is-a-replay lost-write unseen wrong-offset stale-ack duplicate",
    faults="partition",
)
def batches_outlive_truncation(seed: int, rng: Random) -> Plan:
    """Return a plan that cuts off a leader with records that no other replica has; it comes back, truncates, and soon
    leads again.
    """
    at_s, faults = 0.4, []
    for _ in range(4):
        length_s = rng.uniform(0.9, 1.5)
        node, manner = f"node:{rng.randint(1, 3)}", rng.choice(("hold", "drop"))
        faults.append(fault(at_s, length_s, "partition", node, shape="isolate", manner=manner))
        at_s += length_s + rng.uniform(1.2, 2.0)
    load = {"rate": 200, "request_timeout_ms": 2000, "delivery_timeout_ms": 10_000}
    return hunt_plan(seed, faults, settings=REBALANCING, workload=load)


@mutant(
    "57",
    "acknowledges before the fsync that flush.messages=1 promises",
    source="Jepsen: NATS 2.12",
    replaces=[(DurabilityTracker, "is_flush_required", always(False))],
    expected="acknowledged-is-durable leader-completeness strong-isr lost-write unseen",
    faults="disk power_loss",
)
def acknowledged_before_fsync(seed: int, rng: Random) -> Plan:
    """Return a plan in which an fsync takes long, and all nodes lose power at once, under flush.messages=1."""
    slow = {"how": "slow", "op": "fsync", "delay_ms": rng.choice((200, 400))}
    faults = [fault(0.3, 1.2, "disk", f"node:{node}", **slow) for node in (1, 2, 3)]
    faults.append(fault(1.0 + 0.4 * rng.random(), 0.8, "power_loss", "all"))
    return hunt_plan(seed, faults, workload={"rate": 300, "topic_settings": {"flush.messages": "1"}})


@mutant(
    "58",
    "does not look at the CRC of what it recovers, and serves it",
    source="Jepsen: NATS 2.12",
    replaces=[(scan, "is_intact", always(True))],
    expected="producer-state-is-a-replay loaded-log-is-whole corrupt",
    faults="disk power_loss",
)
def damage_served(seed: int, rng: Random) -> Plan:
    """Return a plan in which power losses tear large batches that were not acknowledged, on the only replica, while its
    disk is slow.
    """
    load = {"replication_factor": 1, "min_isr": 1, "rate": 80, "min_bytes": 3000, "max_bytes": 9000}
    slow = {"how": "slow", "op": "fsync", "delay_ms": 300}
    at_s, faults = 0.3, []
    for _ in range(3):
        node = f"node:{rng.randint(1, 3)}"
        faults.append(fault(at_s, 1.0, "disk", node, **slow))
        faults.append(fault(at_s + rng.uniform(0.4, 0.9), 0.8, "power_loss", node))
        at_s += 3.0
    return hunt_plan(seed, faults, workload={**load, "topic_settings": {"flush.messages": "1"}})


def checked_batches(records: memoryview, expected: int, leader_epoch: int, *, gaps: bool) -> list[LocatedBatch]:
    """Return all batches, even those whose epoch is above the leader's. The correct function refuses such batches."""
    return SOUND_CHECKED_BATCHES(records, expected, LONG_MAX, gaps=gaps)


@mutant(
    "62",
    "takes batches of a later epoch than its leader's from what it fetches",
    source="KAFKA-18723 (2025)",
    replaces=[(log, "checked_batches", checked_batches)],
    expected="epoch-cache batches-in-epochs log-matching lost-write inconsistent-offset",
    faults="bit_rot kill",
    unseen="what a follower took does harm only where it leads; damage of its leader's disk brings it, and once that "
    "leader is gone, a sound broker loses as much",
)
def batches_of_epochs_to_come(seed: int, rng: Random) -> Plan:
    """Return a plan in which the leader's disk flips bits in the epoch of a batch, which no checksum covers, during the
    very first epoch. A follower that was down fetches this batch and appends it. A correct follower refuses it, and
    gets no further until retention has deleted the batch on the leader.

    Only the first epoch is suitable: a flipped bit may turn a later epoch into an earlier epoch, which cannot be
    detected. And the leader must not restart, because a leader that starts again trusts what it reads on its own disk.
    """
    at_s, away_s = rng.uniform(0.3, 0.6), rng.uniform(1.0, 1.4)
    faults = [
        fault(at_s, away_s, "kill", "follower"),
        fault(at_s + away_s - 0.3, 0.1, "bit_rot", "leader", where="epoch"),
    ]
    topic = {"segment.bytes": "2000", "retention.ms": "4000", "flush.messages": "1"}
    load = {"partitions": 1, "rate": 150, "batch_bytes": 1024, "topic_settings": topic}
    return hunt_plan(seed, faults, settings={"log.retention.check.interval.ms": "500"}, workload=load)


def done(self: DurabilityTracker, job: FlushJob, generation: int, wall_ms: int) -> None:
    """Record the flush as if nothing had been truncated meanwhile."""
    SOUND_DONE(self, job, job.generation, wall_ms)


@mutant(
    "65",
    "counts a flush for records that came after the truncation of what it synced",
    source="Redpanda #15201, PR 16105 (2024)",
    replaces=[(DurabilityTracker, "done", done)],
    expected="lost-write unseen corrupt",
    faults="disk partition power_loss",
    masked="one replica counts as durable what is not: every other copy of it would have to go at the same time",
)
def flush_of_what_was_cut(seed: int, rng: Random) -> Plan:
    """Return a plan in which disks are slow to sync while leaders are cut off, truncate, and lose their power."""
    at_s, faults = 0.4, []
    slow = {"how": "slow", "op": "fsync", "delay_ms": rng.choice((100, 300))}
    for _ in range(3):
        length_s, node = rng.uniform(0.9, 1.4), f"node:{rng.randint(1, 3)}"
        faults.append(fault(at_s, length_s + 0.4, "disk", node, **slow))
        faults.append(fault(at_s, length_s, "partition", node, shape="isolate", manner="drop"))
        faults.append(fault(at_s + length_s + rng.uniform(0.05, 0.4), 0.8, "power_loss", node))
        at_s += length_s + 3.0
    load = {"rate": 200, "topic_settings": {"flush.messages": "5"}}
    return hunt_plan(seed, faults, settings=REBALANCING, workload=load)


def checkpoint_recovery_points(self: LogManager) -> None:
    """Write each log's end offset as its recovery point, even if the log is not synced up to that offset."""
    points = {place: log.log_end_offset for place, log in self.logs.items()}
    checkpoints.write_offsets(self._fs, self._path(RECOVERY_POINTS), points)
    self.checkpoint_log_starts()
    self._deleted_since_checkpoint.clear()


@mutant(
    "71",
    "writes down recovery points that are ahead of what is durable",
    source="etcd #20426 (2025)",
    replaces=[(LogManager, "checkpoint_recovery_points", checkpoint_recovery_points)],
    expected="loaded-log-is-whole committed-prefix corrupt lost-write unseen",
    faults="power_loss",
)
def checkpoint_ahead(seed: int, rng: Random) -> Plan:
    """Return a plan with power losses and many small segments, none of which was synced."""
    settings = {"log.flush.offset.checkpoint.interval.ms": "200"}
    load = {"rate": 80, "min_bytes": 1000, "max_bytes": 3000, "batch_bytes": 4096}
    kills = killings(rng, rounds=4, action="power_loss")
    return hunt_plan(seed, kills, settings=settings, workload={**load, "topic_settings": {"segment.bytes": "8192"}})


# Redpanda's cause is not known. Here a follower that catches up writes its leader's current epoch into every batch.
# No checksum covers the epoch in a batch's header, and in the plans no client reads from this follower.
EPOCH_AT = 12
"""Is the position of the leader epoch in a batch's header."""


def append_as_follower(self: Log, records: memoryview, leader_epoch: int) -> FollowerAppendResult:
    """Append the batches, with the epoch in which they were fetched in place of the epochs in their headers."""
    rewritten = bytearray(records)
    for _, start, _ in batches(records):
        struct.pack_into(">i", rewritten, start + EPOCH_AT, leader_epoch)
    return SOUND_APPEND_AS_FOLLOWER(self, memoryview(rewritten), leader_epoch)


@mutant(
    "93",
    "appends a batch that it fetches in the epoch in which it fetches it",
    source="Redpanda #11360 (2023)",
    replaces=[(Log, "append_as_follower", append_as_follower)],
    expected="log-matching replica-divergence",
    faults="kill",
    unseen="the records are the same, and a broker that caught up so does not lead later; its files differ from its "
    "leader's (`--checks files`)",
)
def epochs_rewritten_by_followers(seed: int, rng: Random) -> Plan:
    """Return a plan in which a follower is away while a leader dies, and then catches up in a later epoch. It never
    leads after that.
    """
    away, dies = rng.sample((1, 2, 3), 2)
    at_s = rng.uniform(0.4, 0.6)
    faults = [
        fault(at_s, rng.uniform(2.0, 2.4), "kill", f"node:{away}"),
        fault(at_s + rng.uniform(0.7, 0.9), rng.uniform(0.7, 0.9), "kill", f"node:{dies}"),
    ]
    return hunt_plan(seed, faults)
