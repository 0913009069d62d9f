"""Short functions for the requests of rows and of random sequences. Each returns one request as an `Ask`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall.broker.protocol.schema import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    describe_groups,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    heartbeat,
    init_producer_id,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    produce,
    sync_group,
    txn_offset_commit,
)
from tests.differential.steps import Ask, Batch, Ref

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


def pid(step: str = "init") -> Ref:
    """Return a reference to the producer id that InitProducerId returned in that step."""
    return Ref(step, "producer_id")


def epoch(step: str = "init", plus: int = 0) -> Ref:
    """Return a reference to the newest producer epoch that InitProducerId, or EndTxn of transaction protocol V2,
    returned.
    """
    return Ref(step, "producer_epoch", plus=plus)


def init(tid: str | None, step: str = "init", *, producer: Any = -1, at: Any = -1, version: int = 5, **how: Any) -> Ask:
    """InitProducerId."""
    return Ask(init_producer_id.InitProducerIdRequest(tid, 60_000, producer, at), version, step, **how)


def add(tid: str, topic: str, *, producer: Any, at: Any, part: int = 0, parts: Sequence[int] = (), **how: Any) -> Ask:
    """AddPartitionsToTxn as clients send it, with one partition or several."""
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(topic, list(parts) or [part])]
    return Ask(add_partitions_to_txn.AddPartitionsToTxnRequest(tid, [], producer, at, topics), 3, **how)


def add_offsets(tid: str, group: str, *, producer: Any, at: Any, **how: Any) -> Ask:
    """AddOffsetsToTxn."""
    return Ask(add_offsets_to_txn.AddOffsetsToTxnRequest(tid, producer, at, group), 3, **how)


def end(tid: str, commit: bool, *, producer: Any, at: Any, version: int = 4, **how: Any) -> Ask:
    """EndTxn; from version 5 on its answer has the next producer epoch (KIP-890)."""
    return Ask(end_txn.EndTxnRequest(tid, producer, at, commit), version, **how)


def send(
    topic: str, batch: Any, *, tid: str | None = None, part: int = 0, version: int = 11, acks: int = -1, **how: Any
) -> Ask:
    """Produce; from version 12 on the leader adds the partition to the transaction (KIP-890)."""
    parts = [produce.PartitionProduceData(part, batch)]
    request = produce.ProduceRequest(tid, acks, 30_000, [produce.TopicProduceData(topic, partition_data=parts)])
    return Ask(request, version, **how)


def read(topic: str, *, committed: bool, at: int = 0, part: int = 0, version: int = 12, **how: Any) -> Ask:
    """Fetch from an offset, without a session and without waiting."""
    parts = [fetch.FetchPartition(part, fetch_offset=at, partition_max_bytes=1 << 20)]
    request = fetch.FetchRequest(
        max_wait_ms=0, min_bytes=0, isolation_level=int(committed), topics=[fetch.FetchTopic(topic, partitions=parts)]
    )
    return Ask(request, version, **how)


def offsets(topic: str, timestamp: int, *, committed: bool, part: int = 0, version: int = 7, **how: Any) -> Ask:
    """ListOffsets."""
    parts = [list_offsets.ListOffsetsPartition(part, -1, timestamp)]
    topics = [list_offsets.ListOffsetsTopic(topic, parts)]
    return Ask(list_offsets.ListOffsetsRequest(-1, int(committed), topics), version, **how)


def describe_txn(tid: str, **how: Any) -> Ask:
    """DescribeTransactions."""
    return Ask(describe_transactions.DescribeTransactionsRequest([tid]), 0, **how)


def producers(topic: str, part: int = 0, **how: Any) -> Ask:
    """DescribeProducers."""
    return Ask(describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(topic, [part])]), 0, **how)


def commit(
    group: str, offset: int, *, topic: str = "shared", generation: Any = -1, member: Any = "",
    instance: str | None = None, version: int = 9, part: int = 0, **how: Any
) -> Ask:  # fmt: skip
    """OffsetCommit."""
    parts = [offset_commit.OffsetCommitRequestPartition(part, offset, -1, "m")]
    topics = [offset_commit.OffsetCommitRequestTopic(topic, partitions=parts)]
    request = offset_commit.OffsetCommitRequest(group, generation, member, group_instance_id=instance, topics=topics)
    return Ask(request, version, **how)


def commit_in_txn(
    tid: str, group: str, offset: int, *, producer: Any, at: Any, topic: str = "shared", generation: Any = -1,
    member: Any = "", instance: str | None = None, version: int = 4, **how: Any
) -> Ask:  # fmt: skip
    """TxnOffsetCommit."""
    parts = [txn_offset_commit.TxnOffsetCommitRequestPartition(0, offset, -1, "m")]
    topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(topic, parts)]
    request = txn_offset_commit.TxnOffsetCommitRequest(tid, group, producer, at, generation, member, instance, topics)
    return Ask(request, version, **how)


def committed(
    group: str, *, topic: str | None = "shared", member: Any = None, at: Any = -1, stable: bool = False,
    version: int = 9, **how: Any
) -> Ask:  # fmt: skip
    """OffsetFetch; with `topic` None, of all topics."""
    topics = None if topic is None else [offset_fetch.OffsetFetchRequestTopics(topic, partition_indexes=[0, 1])]
    groups = [offset_fetch.OffsetFetchRequestGroup(group, member, at, topics)]
    return Ask(offset_fetch.OffsetFetchRequest(groups=groups, require_stable=stable), version, **how)


def forget(group: str, topic: str = "shared", **how: Any) -> Ask:
    """OffsetDelete."""
    parts = [offset_delete.OffsetDeleteRequestPartition(0)]
    return Ask(
        offset_delete.OffsetDeleteRequest(group, [offset_delete.OffsetDeleteRequestTopic(topic, parts)]), 0, **how
    )


def beat(group: str, generation: Any, member: Any, instance: str | None = None, **how: Any) -> Ask:
    """Heartbeat to a classic group."""
    return Ask(heartbeat.HeartbeatRequest(group, generation, member, instance), 4, **how)


def sync(group: str, generation: Any, member: Any, instance: str | None = None, *, kind: str = "consumer",
         protocol: str = "range", **how: Any) -> Ask:  # fmt: skip
    """SyncGroup, in which the member assigns partitions to itself."""
    given = [sync_group.SyncGroupRequestAssignment(member, b"assigned")]
    return Ask(sync_group.SyncGroupRequest(group, generation, member, instance, kind, protocol, given), 5, **how)


def leave(group: str, member: Any, instance: str | None = None, **how: Any) -> Ask:
    """LeaveGroup."""
    members = [leave_group.MemberIdentity(member, instance, "bye")]
    return Ask(leave_group.LeaveGroupRequest(group, members=members), 5, **how)


def consume(
    group: str, member: Any, at: Any, *, topics: list[str] | None = None, instance: str | None = None,
    owned: list[Any] | None = None, regex: str | None = None, assignor: str | None = None, timeout_ms: int = 30_000,
    version: int = 1, **how: Any
) -> Ask:  # fmt: skip
    """ConsumerGroupHeartbeat (KIP-848)."""
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group, member, at, instance, None, timeout_ms, topics, regex, assignor, owned
    )
    return Ask(request, version, **how)


def describe_group(group: str, **how: Any) -> Ask:
    """DescribeGroups."""
    return Ask(describe_groups.DescribeGroupsRequest([group]), 6, **how)


def describe_consumers(group: str, **how: Any) -> Ask:
    """ConsumerGroupDescribe."""
    return Ask(consumer_group_describe.ConsumerGroupDescribeRequest([group]), 1, **how)


def about(*topics: str, version: int = 12, **how: Any) -> Ask:
    """Metadata."""
    named = [metadata.MetadataRequestTopic(name=name) for name in topics]
    return Ask(metadata.MetadataRequest(named, False), version, **how)


def batch(step: str, *values: bytes, sequence: Any = -1, txn: bool = False, plus: int = 0) -> Batch:
    """A batch by the producer that InitProducerId returned in that step."""
    return Batch(values or (b"v",), pid(step), epoch(step, plus), sequence, txn)
