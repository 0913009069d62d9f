"""Plants bugs of the way of a record to a reader: fetches, offsets, and look-ups."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from squall.broker.apis.fetch import DelayedFetch, FetchApi
from squall.broker.apis.fetch_session import PartitionRequest
from squall.broker.apis.offsets import OffsetApis
from squall.broker.log.lookups import CandidateBatch, SearchPause, TimestampLookup
from squall.broker.log.reads import segment_at
from squall.broker.log.slices import FileSlice
from squall.broker.net.connection import PendingResponse
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.hot import FetchResponsePartition
from squall.broker.protocol.records import batches
from squall.broker.protocol.schema.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from squall.broker.replication import Partition
from squall.broker.replication.rules import READ_COMMITTED, PartitionRules
from squall.broker.replication.truncation import EpochCachePort
from squall.chaos.mutants.hunt_plans import REBALANCING, fault, hunt_plan, killings_behind, slow_links, somewhat_late
from squall.chaos.mutants.mutant import always, mutant
from squall.chaos.plans.plan import Plan
from squall.workloads.client import consumer, fetched
from squall.workloads.client.cluster import Leader, Place
from squall.workloads.client.connection import RequestFailed
from squall.workloads.client.consumer import Consumer, _PartitionState
from squall.workloads.client.fetched import ReadRecords

# The rules as they are while no mutant is planted.
SOUND_READ = FetchApi._read
SOUND_WAKE = DelayedFetch.wake
SOUND_ASSIGN = Consumer.assign
SOUND_VALIDATED = Consumer._validated
SOUND_READ_RECORDS = fetched.read_records
SOUND_END_OF_EPOCH = PartitionRules.end_of_epoch
SOUND_LAST_STABLE_OFFSET = PartitionRules.last_stable_offset


@mutant(
    "21",
    "tells the latest offset before it has reached the start of its epoch",
    source="KAFKA-2334, KIP-207",
    replaces=[(PartitionRules, "latest_offset_available", always(True))],
    expected="offset-regression nonmonotonic-poll poll-skip",
    faults="kill",
)
def low_latest_offset(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders die one after the other. The one replica that is left does not know the latest
    high watermark. It would learn the high watermark by committing a record, which it cannot do alone. Readers ask for
    their lag meanwhile.
    """
    at_s, faults, last = 0.5, [], 0
    for _ in range(4):
        last = rng.choice([node for node in (1, 2, 3) if node != last])
        down_s = rng.uniform(1.6, 2.2)
        faults.append(fault(at_s, down_s, "kill", f"node:{last}"))
        at_s += down_s + rng.uniform(0.8, 1.2)
    return hunt_plan(seed, faults, workload={"replication_factor": 2, "min_isr": 2, "rate": 100})


def read_limit_22(self: Partition, isolation: int, first_unstable_offset: int | None) -> int:
    """Return the log end offset, where the correct limit is the high watermark."""
    return self.log_end_offset


@mutant(
    "22",
    "lets consumers read beyond the high watermark",
    source="KAFKA-9835",
    replaces=[(PartitionRules, "read_limit", read_limit_22)],
    expected="served-is-committed unseen inconsistent-offset nonmonotonic-poll lso-violation",
    faults="kill latency",
)
def reads_beyond_high_watermark(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders die under load while followers lag."""
    return hunt_plan(seed, killings_behind(rng), workload={"rate": 300, "readers": 2})


def offset_for_leader_epoch(
    self: OffsetApis, request: OffsetForLeaderEpochRequest, slot: PendingResponse
) -> OffsetForLeaderEpochResponse:
    """Answer from the local log, whichever broker leads and in whatever epoch."""
    topics = []
    for topic in request.topics:
        parts = []
        for p in topic.partitions:
            h = self._find(topic.topic, p.partition)
            error = self._absent(topic.topic, p.partition) if h is None else ErrorCode.NONE
            epoch, end = (-1, -1) if h is None else h.state.end_of_epoch(h.log.epochs, p.leader_epoch)
            parts.append(EpochEndOffset(int(error), p.partition, epoch, end))
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=parts))
    return OffsetForLeaderEpochResponse(topics=topics)


@mutant(
    "47",
    "answers where an epoch ends though it does not lead, or not in that epoch",
    source="Redpanda PR 6400",
    replaces=[(OffsetApis, "offset_for_leader_epoch", offset_for_leader_epoch)],
    expected="thrown-back nonmonotonic-poll poll-skip",
    faults="kill latency",
    masked="clients ask only whom the metadata name as the leader, and who is named holds all that readers have read",
)
def followers_answer_epochs(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders change. Readers then send OffsetForLeaderEpoch to a broker that is no longer the
    leader, or not yet the leader.
    """
    return hunt_plan(
        seed, killings_behind(rng, rounds=5, most_ms=150), settings=REBALANCING, workload={"readers": 3, "rate": 200}
    )


BEHIND, LEFT = 60, 20
"""A reader that is more than BEHIND records behind the high watermark is slow: it skips to LEFT records before the high
watermark.
"""


def _read_55(
    self: FetchApi, fetch: DelayedFetch, want: PartitionRequest, left: int, first: bool
) -> FetchResponsePartition:
    """Read from LEFT records before the high watermark, and not from the requested offset, if the consumer is slow."""
    h, part = want.hosted, want.part
    if fetch.replica_id < 0 and h is not None and h.state.high_watermark - part.offset > BEHIND:
        want = PartitionRequest(want.key, part._replace(offset=h.state.high_watermark - LEFT), h)
    return SOUND_READ(self, fetch, want, left, first)


@mutant(
    "55",
    "leaves out what a slow reader has not read yet",
    source="Jepsen: Bufstream 0.1",
    replaces=[(FetchApi, "_read", _read_55)],
    expected="poll-skip lost-write unseen",
    faults="latency",
)
def slow_readers_skip(seed: int, rng: Random) -> Plan:
    """Return a plan in which readers pause after each poll."""
    late = somewhat_late(seed, "55")
    return hunt_plan(seed, late, workload={"rate": 300, "partitions": 1, "poll_pause_ms": rng.choice((300, 500))})


def wake(self: DelayedFetch) -> None:
    """Give a waiting consumer only the newest batch, and none of the batches before it."""
    if self.replica_id < 0:
        self.wants = [_newest(want) for want in self.wants]
        self.look = list(enumerate(self.wants))
    SOUND_WAKE(self)


def _newest(want: PartitionRequest) -> PartitionRequest:
    h = want.hosted
    if h is None:
        return want
    ends = h.log.segments[-1].ends
    # The end of the last committed batch but one is where the last committed batch begins.
    newest = ends[max(0, bisect_right(ends, h.state.high_watermark) - 2)]
    return PartitionRequest(want.key, want.part._replace(offset=max(want.part.offset, newest)), want.hosted)


@mutant(
    "69",
    "gives a reader that waited only the newest of several batches",
    source="etcd #17529, PR 17555 (2024)",
    replaces=[(DelayedFetch, "wake", wake)],
    expected="poll-skip",
    faults="latency",
)
def woken_readers_skip(seed: int, rng: Random) -> Plan:
    """Return a plan in which followers acknowledge late, so that several batches are committed at once while readers
    wait.
    """
    return hunt_plan(seed, [slow_links(rng, rng.uniform(0.1, 0.5), 3.0)], workload={"rate": 300, "partitions": 1})


def _read_70(
    self: FetchApi, fetch: DelayedFetch, want: PartitionRequest, left: int, first: bool
) -> FetchResponsePartition:
    """Skip the first batch for a consumer that reads from the start of a log whose older records were deleted."""
    h, part = want.hosted, want.part
    if fetch.replica_id < 0 and h is not None and part.offset == h.log.log_start_offset > 0:
        batch = next(h.log.segments[0].walk_from(part.offset), None)
        if batch is not None:
            behind = batch.header.base_offset + batch.header.last_offset_delta + 1
            want = PartitionRequest(want.key, part._replace(offset=min(behind, h.state.high_watermark)), h)
    return SOUND_READ(self, fetch, want, left, first)


@mutant(
    "70",
    "leaves out the first batch for who reads from the start of a log that retention has cut",
    source="etcd #18089 (2024), #19179 (2025)",
    replaces=[(FetchApi, "_read", _read_70)],
    expected="lost-write unseen poll-skip",
    faults="latency",
)
def first_batch_skipped(seed: int, rng: Random) -> Plan:
    """Return a plan in which retention deletes small segments while the load runs."""
    retention = {"segment.bytes": "4096", "retention.bytes": rng.choice(("8192", "16384"))}
    load = {"rate": 200, "batch_bytes": 1024, "topic_settings": retention}
    settings = {"log.retention.check.interval.ms": "200"}
    return hunt_plan(seed, somewhat_late(seed, "70"), settings=settings, workload=load, time_s=4.0)


def _not_before(self: TimestampLookup, timestamp: int) -> Iterator[CandidateBatch | SearchPause]:
    """Yield each batch whose first record has at least this timestamp."""
    for segment in self._segments[segment_at(self._segments, self._start) :]:
        for step in self._walk(segment, max(self._start, segment.base_offset)):
            if isinstance(step, SearchPause):
                yield step
            elif step.header.base_timestamp >= timestamp:
                yield self._candidate(segment, step, timestamp)


@mutant(
    "82",
    "leaves out batches that begin before the time that is looked up",
    source="Redpanda #6604, PR 6606 (2022)",
    replaces=[(TimestampLookup, "_not_before", _not_before)],
    expected="wrong-lookup",
    faults="latency",
)
def lookups_by_first_timestamp(seed: int, rng: Random) -> Plan:
    """Return a plan that needs no fault. Each batch spans much time, so that many looked-up times lie inside of a
    batch.
    """
    workload = {"rate": 60, "linger_ms": 200, "readers": 2, "lookups": True}
    return hunt_plan(seed, somewhat_late(seed, "82"), workload=workload)


# AutoMQ, whose block cache lost one of the blocks of a read, found the hole by a check, and failed the read. Here
# there is no such check.
FEWEST = 3
"""Is the smallest number of batches in a read from which this bug leaves one out."""


class _ReadBlocks(NamedTuple):
    """Offers bytes in memory by a file's method `pread`, because a response reads its records from a file."""

    data: bytes

    def pread(self, length: int, position: int) -> bytes:
        """Return up to `length` bytes of `data` from `position` on."""
        return self.data[position : position + length]


def _read_84(
    self: FetchApi, fetch: DelayedFetch, want: PartitionRequest, left: int, first: bool
) -> FetchResponsePartition:
    """Leave out the second batch of a consumer's read of three batches or more."""
    out = SOUND_READ(self, fetch, want, left, first)
    records: Any = out.records
    if fetch.replica_id >= 0 or not records:
        return out
    data = records.read()
    found = [(start, end) for _, start, end in batches(memoryview(data))]
    if len(found) < FEWEST:
        return out
    start, end = found[1]
    blocks: Any = _ReadBlocks(data[:start] + data[end:])
    return out._replace(records=FileSlice(blocks, 0, len(blocks.data)))


@mutant(
    "84",
    "leaves out a batch in the middle of an answer to a consumer",
    source="AutoMQ #564 (2023), #2193 (2024)",
    replaces=[(FetchApi, "_read", _read_84)],
    expected="int-poll-skip",
    faults="latency",
)
def hole_in_a_read(seed: int, rng: Random) -> Plan:
    """Return a plan in which followers acknowledge late, so that one read has several batches."""
    return hunt_plan(seed, [slow_links(rng, rng.uniform(0.1, 0.5), 2.0)], workload={"rate": 300, "partitions": 1})


# librdkafka went back when partitions were resumed. Here the client goes back when a new leader has confirmed the
# position.
STARTS = "fetch_starts"


def assign(self: Consumer, positions: Mapping[Place, int]) -> None:
    """Remember the positions at which fetching starts: the bug resumes there later."""
    vars(self)[STARTS] = dict(positions)
    SOUND_ASSIGN(self, positions)


def _validated(
    self: Consumer,
    version: int,
    suspect: dict[Place, tuple[_PartitionState, Leader]],
    body: memoryview | None,
    failure: RequestFailed | None,
) -> None:
    """Do what the correct function does. Then, for each partition whose position a new leader has confirmed, go back to
    the remembered position. Remember the confirmed position for the next change of leaders.
    """
    SOUND_VALIDATED(self, version, suspect, body, failure)
    starts = vars(self).setdefault(STARTS, {})
    for place, (part, leader) in suspect.items():
        if part.leader_epoch == leader.epoch and not part.resting:
            part.position, starts[place] = starts.get(place, part.position), part.position


@mutant(
    "85",
    "is sound; its client fetches again, after a change of leaders, from where it began to fetch before",
    source="librdkafka #4637 (2024)",
    replaces=[(Consumer, "assign", assign), (Consumer, "_validated", _validated)],
    expected="nonmonotonic-poll",
    faults="kill latency",
)
def fetches_resume_earlier(seed: int, rng: Random) -> Plan:
    """Return a plan in which leadership moves again and again while readers read."""
    return hunt_plan(seed, killings_behind(rng, rounds=3), settings=REBALANCING, workload={"readers": 2})


def read_records(
    view: memoryview | None, position: int, aborted: Sequence[tuple[int, int]] | None, isolation: int
) -> ReadRecords:
    """Return the records of small batches before those of large batches."""
    read = SOUND_READ_RECORDS(view, position, aborted, isolation)
    if view is None or read.damage:
        return read
    size_at = {}
    for header, start, end in batches(view):
        size_at.update(dict.fromkeys(range(header.base_offset, header.next_offset), end - start))
    return read._replace(records=sorted(read.records, key=lambda record: size_at[record.offset]))


@mutant(
    "86",
    "is sound; its client returns the batches of an answer in the order in which it has unpacked them",
    source="kafka-node #298 (2016)",
    replaces=[(consumer, "read_records", read_records)],
    expected="int-nonmonotonic-poll",
    faults="latency",
)
def batches_unpacked_out_of_order(seed: int, rng: Random) -> Plan:
    """Return a plan in which followers acknowledge late, so that one Fetch response has several batches."""
    return hunt_plan(seed, [slow_links(rng, rng.uniform(0.1, 0.5), 2.0)], workload={"rate": 300, "partitions": 1})


def end_of_epoch(self: Partition, epochs: EpochCachePort, epoch: int) -> tuple[int, int]:
    """Return an end offset that is at most the high watermark, which a new leader learns late."""
    found, end = SOUND_END_OF_EPOCH(self, epochs, epoch)
    return found, min(end, self.high_watermark)


@mutant(
    "87",
    "tells a reader that an epoch ends at the high watermark, which a new leader does not know yet",
    source="Redpanda #5435 (2022)",
    replaces=[(PartitionRules, "end_of_epoch", end_of_epoch)],
    expected="thrown-back",
    faults="kill latency",
)
def epochs_end_at_high_watermark(seed: int, rng: Random) -> Plan:
    """Return a plan in which leaders change, and readers ask the new leaders whether what they read is still there."""
    return hunt_plan(seed, killings_behind(rng, rounds=4), settings=REBALANCING, workload={"readers": 3, "rate": 200})


def last_stable_offset(self: Partition, first_unstable_offset: int | None) -> int:
    """Return the log end offset if no transaction is open."""
    return (
        self.log_end_offset if first_unstable_offset is None else SOUND_LAST_STABLE_OFFSET(self, first_unstable_offset)
    )


def read_limit_88(self: Partition, isolation: int, first_unstable_offset: int | None) -> int:
    """Return the limit of the correct broker, so that no reader gets records too early: only the reported last stable
    offset is wrong.
    """
    return SOUND_LAST_STABLE_OFFSET(self, first_unstable_offset) if isolation == READ_COMMITTED else self.high_watermark


@mutant(
    "88",
    "tells readers a last stable offset that is not replicated yet",
    source="Redpanda PR 1557 (2021)",
    replaces=[
        (PartitionRules, "last_stable_offset", last_stable_offset),
        (PartitionRules, "read_limit", read_limit_88),
    ],
    expected="stable-offset-is-a-replay lso-violation",
    faults="kill latency",
)
def stable_offset_above_high_watermark(seed: int, rng: Random) -> Plan:
    """Return a plan in which followers lag, so that the high watermark is below the end of the log."""
    return hunt_plan(seed, killings_behind(rng, rounds=2))


def read_limit_92(self: Partition, isolation: int, first_unstable_offset: int | None) -> int:
    """Return the offset of the last replicated record, so that this record cannot be read yet."""
    high_watermark = self.high_watermark
    stable = self.last_stable_offset(first_unstable_offset) if isolation == READ_COMMITTED else high_watermark
    return max(self.log_start_offset, min(stable, high_watermark - 1))


@mutant(
    "92",
    "withholds the last record of a partition from readers until there is a next one",
    source="Apache BookKeeper, protocol: an entry is readable once a later one has confirmed it",
    replaces=[(PartitionRules, "read_limit", read_limit_92)],
    expected="unseen",
    faults="latency",
)
def last_record_withheld(seed: int, rng: Random) -> Plan:
    """Return a plan in which each batch has one record."""
    workload = {"rate": 60, "min_bytes": 900, "max_bytes": 1000, "batch_bytes": 1024, "linger_ms": 0}
    return hunt_plan(seed, somewhat_late(seed, "92"), workload=workload)
