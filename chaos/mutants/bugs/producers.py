"""Plants bugs of the way of a record into a log, and of what a broker knows of producers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from random import Random
from weakref import WeakKeyDictionary

from squall.broker.apis import produce
from squall.broker.apis.produce import ProduceApi
from squall.broker.log.indexes import AbortedTxn
from squall.broker.log.log import Log
from squall.broker.log.markers import TxnMarker
from squall.broker.log.producer_rules import BatchMetadata, ProducerRules, ProducerStateEntry
from squall.broker.log.producers import ProducerStates
from squall.broker.log.results import AppendResult, FollowerAppendResult
from squall.broker.net.connection import Connection
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.hot import ProducePartOut
from squall.broker.protocol.record_walk import CheckedBatch
from squall.broker.protocol.records import SEQUENCE_MASK, BatchHeader
from squall.broker.replicas.flushes import UnflushedAppend
from squall.broker.replicas.hosted_partition import HostedPartition
from squall.broker.replicas.purgatory import DelayedProduce, ProducePurgatory, ProduceResult
from squall.broker.replicas.replica_manager import ReplicaManager
from squall.chaos.mutants.hunt_plans import (
    REBALANCING,
    fault,
    hunt_plan,
    killings,
    killings_behind,
    slow_links,
    somewhat_late,
)
from squall.chaos.mutants.mutant import always, mutant, txn_mutant
from squall.chaos.mutants.txn_plans import TOPIC, series, txn, txn_plan
from squall.chaos.plans.plan import Plan
from squall.workloads.client.accumulator import ProducerBatch, RecordAccumulator, SettledBatch

# The rules as they are while no mutant is planted.
SOUND_ENDED = ProducerStates.ended
SOUND_APPEND_AS_FOLLOWER = Log.append_as_follower
SOUND_FOLLOWED = ReplicaManager.followed
SOUND_ENCODE = ProducerStates.encode
SOUND_APPEND_AS_LEADER = Log.append_as_leader
SOUND_REQUEUE = RecordAccumulator._requeue
SOUND_APPEND = ProduceApi._append

Appended = tuple[ProduceResult, DelayedProduce | None]


@dataclass(frozen=True, slots=True)
class AppendCall:
    """Holds the arguments of a call of `ProduceApi._append`."""

    api: ProduceApi
    h: HostedPartition
    index: int
    records: memoryview | None
    version: int
    acks: int
    now_ms: int
    wall_ms: int
    checked: CheckedBatch | AppendResult | None

    def go(self) -> Appended:
        """Append as the correct broker does: call `ProduceApi._append` with these arguments."""
        return SOUND_APPEND(*(getattr(self, each.name) for each in fields(self)))


def around_append(rule: Callable[[AppendCall], Appended]) -> Callable[..., Appended]:
    """Return a replacement of `ProduceApi._append`: `rule` is called in its place."""

    # The parameters are on one line, because they only repeat those of the replaced function.
    def _append(self, h, index, records, version, acks, now_ms, wall_ms, checked):  # type: ignore[no-untyped-def]
        return rule(AppendCall(self, h, index, records, version, acks, now_ms, wall_ms, checked))

    return _append


LEADER_ALONE = 1


def checked_late(append: AppendCall) -> Appended:
    """Append first, and check the ISR afterwards."""
    if append.acks != -1 or not append.h.state.under_min_isr_before_append():
        return append.go()
    # With acks=1 the append neither checks the ISR nor waits for it.
    result, _ = replace(append, acks=LEADER_ALONE).go()
    if not result.error:
        result.refuse(int(ErrorCode.NOT_ENOUGH_REPLICAS))
    return result, None


@mutant(
    "20c",
    "answers NOT_ENOUGH_REPLICAS to what it has appended",
    source="NOT_ENOUGH_REPLICAS (19): Kafka's protocol says that nothing was appended",
    replaces=[(ProduceApi, "_append", around_append(checked_late))],
    expected="failed-yet-read duplicate",
    faults="pause",
)
def refused_after_append(seed: int, rng: Random) -> Plan:
    """Return a plan with min.insync.replicas=3 in which one of three replicas is paused. The pause is longer than the
    time for which a producer retries.
    """
    held_s = rng.uniform(3.0, 4.0)
    faults = [fault(rng.uniform(0.5, 1.0), held_s, "pause", f"node:{rng.randint(1, 3)}")]
    return hunt_plan(seed, faults, workload={"min_isr": 3, "delivery_timeout_ms": 1000, "request_timeout_ms": 500})


# With a producer's state, the leader forgets the epoch by which it would refuse a fenced producer. Since KIP-890 it
# also asks the coordinator. The plan disables that (transaction.partition.verification.enable), as before Kafka 3.6.
def ended(self: ProducerStates, header: BatchHeader, marker: TxnMarker) -> AbortedTxn | None:
    """Do what the correct function does, but do not set the producer's timestamp to that of the marker. So the
    producer's state expires as if no marker had come.
    """
    before = self.entries.get(header.producer_id)
    timestamp = -1 if before is None else before.timestamp
    aborted = SOUND_ENDED(self, header, marker)
    self.entries[header.producer_id].timestamp = timestamp
    return aborted


@txn_mutant(
    "33",
    "forgets a producer by the age of its last records, and with it the epoch of a marker that came since",
    source="KAFKA-9144",
    replaces=[(ProducerStates, "ended", ended)],
    expected="G1a hanging-txn stuck-consumer duplicate",
    faults="protocol",
)
def marker_age_ignored(seed: int, rng: Random) -> Plan:
    """Return a plan in which a producer's record is so late that its transaction times out and is aborted first. So the
    abort marker reaches the partition before the record does. The producer's successor writes to this partition next.
    """
    faults, transactions = [], []
    for round_ in range(2):
        at_s, place = 0.4 + 7.0 * round_, rng.randrange(2)
        late = {"act": "delay", "delay_ms": rng.randint(2600, 3000), "count": 0, "side": "clients"}
        faults.append(fault(at_s, 1.2, "protocol", f"leader:{TOPIC}-{place}", api="Produce", **late))
        transactions.append(txn(at_s + 0.1, partition=1 - place))
        transactions.append(txn(at_s + 4.5, partition=place))
    settings = {
        "transaction.partition.verification.enable": "false",
        "producer.id.expiration.ms": "4000",
        "log.retention.check.interval.ms": "200",
    }
    workload = {"generation": 1, "request_timeout_ms": 800, "delivery_timeout_ms": 1500, "transaction_timeout_ms": 1000}
    return txn_plan(seed, faults, transactions, settings=settings, workload=workload, time_s=14.0)


def append_as_follower(self: Log, records: memoryview, leader_epoch: int) -> FollowerAppendResult:
    """Append as usual, but forget what the batches say about their producers."""
    kept, self.producers = self.producers, ProducerStates()
    try:
        return SOUND_APPEND_AS_FOLLOWER(self, records, leader_epoch)
    finally:
        self.producers = kept


@mutant(
    "34",
    "forgets on followers which batches of a producer it has",
    source="KAFKA-5435",
    replaces=[(Log, "append_as_follower", append_as_follower)],
    expected="appended-once producer-state-is-a-replay duplicate",
    faults="kill latency",
)
def no_producer_state_on_followers(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders die with responses in flight, and idempotent producers send again."""
    return hunt_plan(seed, killings_behind(rng))


def known_batch_35(self: ProducerRules, entry: ProducerStateEntry, header: BatchHeader) -> BatchMetadata | None:
    """Return the batch in the log that has the same sequence numbers, or None. The correct function also requires the
    same producer epoch, because a new epoch begins its sequence numbers at 0.
    """
    first = header.base_sequence
    last = first + header.last_offset_delta & SEQUENCE_MASK
    for sent in entry.window:
        if (sent.first_sequence, sent.last_sequence) == (first, last):
            return sent
    return None


def restart(self: ProducerStateEntry, epoch: int) -> None:
    """Restart the sequence numbers for a new epoch, but keep the known batches of the earlier epoch. The correct
    function forgets these batches.
    """
    self.epoch = epoch
    self.next_sequence = 0


@txn_mutant(
    "35",
    "takes the first batch of a new producer epoch for a repetition of one of an earlier epoch",
    source="Redpanda #5026",
    replaces=[(ProducerRules, "known_batch", known_batch_35), (ProducerStateEntry, "restart", restart)],
    expected="lost-write unseen torn-txn lost-txn stale-ack wrong-offset",
)
def window_survives_epochs(seed: int, rng: Random) -> Plan:
    """Return a plan with transactions of V2, each in an epoch of its own."""
    return txn_plan(seed, [], series(rng, 2.0), time_s=2.5)


def known_batch_36(self: ProducerRules, entry: ProducerStateEntry, header: BatchHeader) -> BatchMetadata | None:
    """Recognise a batch as a duplicate only if it repeats the producer's newest batch."""
    last = header.base_sequence + header.last_offset_delta & SEQUENCE_MASK
    newest = entry.window[-1] if entry.window else None
    known = newest is not None and (newest.first_sequence, newest.last_sequence) == (header.base_sequence, last)
    return newest if known and header.producer_epoch == entry.epoch else None


@mutant(
    "36",
    "knows only the newest batch of a producer again, where five may be in flight",
    source="Redpanda #3038, #3077",
    replaces=[(ProducerRules, "known_batch", known_batch_36)],
    expected="duplicate",
    faults="kill latency",
    masked="the resent batch is refused as out of order; our client then gives it up as unknown, which is true. The "
    "duplicate came of Java clients that raise their epoch and send it again",
)
def window_of_one(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders die with several responses to one producer in flight."""
    return hunt_plan(seed, killings_behind(rng), workload={"rate": 300, "partitions": 1})


def _on_the_wire(r: ProduceResult) -> ProducePartOut:
    """Encode offset 0, whatever offset the record has."""
    offset = -1 if r.error else 0
    return r.index, r.error, offset, r.append_time_ms, r.log_start_offset, r.message, r.leader, r.faults


@mutant(
    "54",
    "acknowledges every batch with offset 0",
    source="Jepsen: Bufstream 0.1",
    replaces=[(produce, "_on_the_wire", _on_the_wire)],
    expected="acknowledged-offset wrong-offset stale-ack",
    faults="latency",
)
def offset_zero(seed: int, rng: Random) -> Plan:
    """Return a plan that needs no fault."""
    return hunt_plan(seed, somewhat_late(seed, "54"))


_LAST: WeakKeyDictionary[ProduceApi, tuple[HostedPartition, int, bytes]] = WeakKeyDictionary()
"""Maps each broker to the partition and time of its last batch, and to the batch's bytes."""


def mixed_up(append: AppendCall) -> Appended:
    """Append the broker's previous batch instead of this one, if both came in the same millisecond for different
    partitions. The CRC of the appended batch is right.
    """
    if append.records is not None:
        last = _LAST.get(append.api)
        _LAST[append.api] = (append.h, append.now_ms, bytes(append.records))
        if last is not None and last[0] is not append.h and last[1] == append.now_ms:
            # `checked` is about the batch that is replaced, so the other batch must be checked anew.
            append = replace(append, records=memoryview(bytearray(last[2])), checked=None)
    return append.go()


@mutant(
    "61",
    "writes a batch of one partition into another one",
    source="KAFKA-19012 (2025)",
    replaces=[(ProduceApi, "_append", around_append(mixed_up))],
    expected="acknowledged-offset acknowledged-is-committed phantom lost-write unseen",
    faults="latency",
)
def buffer_reused(seed: int, rng: Random) -> Plan:
    """Return a plan that sends batches of several partitions at once, from producers without sequence numbers."""
    load = {"idempotence": False, "linger_ms": 50, "rate": 300, "partitions": 9}
    return hunt_plan(seed, somewhat_late(seed, "61"), workload=load)


def followed(
    self: ReplicaManager, h: HostedPartition, leader_high_watermark: int, leader_log_start: int
) -> UnflushedAppend | None:
    """Do what the correct function does. Then acknowledge the waiting produce requests below the high watermark,
    although this broker is a follower.
    """
    held = SOUND_FOLLOWED(self, h, leader_high_watermark, leader_log_start)
    h.uncommitted.answer_up_to(h.state.high_watermark, 0)
    return held


@mutant(
    "63",
    "acknowledges what it appended as a leader once the next leader's high watermark passes its offset",
    source="KAFKA-20634 (2026)",
    replaces=[(ProducePurgatory, "answer_all", always(None)), (ReplicaManager, "followed", followed)],
    expected="acknowledged-is-committed acknowledged-is-replicated acknowledged-offset lost-write unseen wrong-offset "
    "stale-ack",
    faults="kill latency",
)
def waits_outlive_leadership(seed: int, rng: Random) -> Plan:
    """Return a plan in which leadership moves back to earlier leaders while slow followers have not fetched all
    records. Meanwhile other producers write to the same partitions.
    """
    kills = killings(rng, rounds=5)
    load = {"producers": 4, "rate": 300, "request_timeout_ms": 5000, "delivery_timeout_ms": 15_000}
    slow = slow_links(rng, 0.0, kills[-1]["at_s"] + 2.0)
    return hunt_plan(seed, [slow, *kills], settings=REBALANCING, workload=load)


def encode(self: ProducerStates) -> bytes:
    """Encode only producers that are between two transactions."""
    kept = ProducerStates()
    kept.entries = {pid: entry for pid, entry in self.entries.items() if entry.txn_first_offset < 0}
    return SOUND_ENCODE(kept)


@txn_mutant(
    "64",
    "leaves producers with open transactions out of the snapshots that it starts from",
    source="Redpanda PR 30003 (2026)",
    replaces=[(ProducerStates, "encode", encode)],
    expected="dirty-read G1a hanging-txn lost-txn torn-txn offset-regression",
    faults="stop",
)
def open_transactions_left_out(seed: int, rng: Random) -> Plan:
    """Return a plan in which brokers stop and start while long transactions are open, and lead the same partitions
    again.
    """
    at_s, faults, transactions = 0.5, [], series(rng, 6.0, producers=1)
    for _ in range(4):
        node = rng.randint(1, 3)
        transactions.append(txn(at_s, producer=1, records=4, pause_ms=2500))
        faults.append(fault(at_s + 0.3, 0.5, "stop", f"node:{node}"))
        at_s += 2.7
    settings = {**REBALANCING, "transaction.max.timeout.ms": "10000"}
    load = {"producers": 2, "transaction_timeout_ms": 8000}
    return txn_plan(seed, faults, transactions, settings=settings, workload=load)


FORGOTTEN_MS = 300


def may_forget(self: ProducerRules, entry: ProducerStateEntry, wall_ms: int, after_ms: int) -> bool:
    """Return True long before producer.id.expiration.ms."""
    return entry.txn_first_offset < 0 and wall_ms - entry.timestamp >= FORGOTTEN_MS


@mutant(
    "66",
    "forgets an idempotent producer long before producer.id.expiration.ms",
    source="Redpanda #22670 (2024)",
    replaces=[(ProducerRules, "may_forget", may_forget)],
    expected="appended-once producer-state-is-a-replay duplicate",
    faults="kill latency",
)
def producers_forgotten(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders die with responses in flight. Brokers forget the producers before the producers
    find the next leader.
    """
    settings = {"log.retention.check.interval.ms": "100"}
    return hunt_plan(seed, killings_behind(rng), settings=settings)


def append_as_leader(
    self: Log,
    records: memoryview,
    leader_epoch: int,
    wall_ms: int,
    *,
    client: bool = True,
    zstd: bool = True,
    checked: CheckedBatch | AppendResult | None = None,
) -> AppendResult:
    """Do what the correct function does, but return an offset that each truncation shifts by one."""
    done = SOUND_APPEND_AS_LEADER(self, records, leader_epoch, wall_ms, client=client, zstd=zstd, checked=checked)
    # `generation` counts the truncations of the log.
    shifted = client and not done.error
    return done._replace(base_offset=done.base_offset + self.generation) if shifted else done


@mutant(
    "67",
    "tells offsets that are shifted by each truncation of its log",
    source="Redpanda PR 29849 (2026)",
    replaces=[(Log, "append_as_leader", append_as_leader)],
    expected="wrong-offset stale-ack acknowledged-offset acknowledged-is-committed",
    faults="partition",
)
def offsets_shifted(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders are cut off, truncate when they are back, and lead again."""
    at_s, faults = 0.4, []
    for _ in range(3):
        length_s = rng.uniform(0.9, 1.5)
        node = f"node:{rng.randint(1, 3)}"
        faults.append(fault(at_s, length_s, "partition", node, shape="isolate", manner="drop"))
        at_s += length_s + rng.uniform(1.5, 2.2)
    return hunt_plan(seed, faults, settings=REBALANCING)


@mutant(
    "80",
    "takes a connection's next request while one before it waits to take effect",
    source="our own issue: four pipelined IncrementalAlterConfigs ended with a wrong value",
    replaces=[(Connection, "hold", always(None))],
    expected="one-order-per-connection send-reorder",
    faults="latency",
    unseen="the sequence numbers of idempotent producers refuse what comes too early, other producers with several "
    "requests in flight are promised no order, and no client of a workload alters one setting twice at once",
)
def no_order_of_requests(seed: int, rng: Random) -> Plan:
    """Return a plan with producers that have five requests in flight. The broker validates the records of each batch.
    It does this off the event loop for a large batch, so a small batch that was sent later can overtake it.
    """
    workload = {
        "idempotence": rng.random() < 0.5,
        "max_in_flight": 5,
        "min_bytes": 64,
        "max_bytes": 60_000,
        "batch_bytes": 65_536,
        "linger_ms": 0,
        "partitions": 1,
        "topic_settings": {"squall.record.validation.enable": "true"},
    }
    return hunt_plan(seed, somewhat_late(seed, "80"), workload=workload)


def _requeue(self: RecordAccumulator, batch: ProducerBatch, now_ms: int) -> list[SettledBatch]:
    """Put the batch at the end of its partition's queue."""
    settled = SOUND_REQUEUE(self, batch, now_ms)
    waiting = batch.lane.waiting
    if batch in waiting:
        waiting.remove(batch)
        waiting.append(batch)
    return settled


@mutant(
    "83",
    "is sound; its client sends a batch again only after the batches that were queued behind it",
    source="librdkafka #1092 (2017)",
    replaces=[(RecordAccumulator, "_requeue", _requeue)],
    expected="send-reorder",
    faults="kill latency",
)
def retries_go_behind(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders die under producers without idempotence, which keep one request in flight: that
    alone guarantees the order of their records.
    """
    workload = {"idempotence": False, "max_in_flight": 1, "rate": 300}
    return hunt_plan(seed, killings_behind(rng, rounds=4), workload=workload)
