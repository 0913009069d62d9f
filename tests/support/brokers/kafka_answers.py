"""Lists what Apache Kafka 4.3.1 answers to single requests: a table of (state, request, answer) to compare any broker
with.

Every answer here was measured. Squall's broker must give it in memory (`tests/unit/apis/test_answers_of_kafka.py`),
Kafka at night (`tests/live/process/test_answers_of_kafka.py`). The rows are sent in order: each finds the state that
the rows before it have left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, NamedTuple

import trio

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import Record, encode_batch
from squall.broker.protocol.schema.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from squall.broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest
from squall.broker.protocol.schema.delete_groups import DeleteGroupsRequest
from squall.broker.protocol.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from squall.broker.protocol.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from squall.broker.protocol.schema.describe_groups import DescribeGroupsRequest
from squall.broker.protocol.schema.describe_producers import DescribeProducersRequest, TopicRequest
from squall.broker.protocol.schema.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from squall.broker.protocol.schema.find_coordinator import FindCoordinatorRequest
from squall.broker.protocol.schema.heartbeat import HeartbeatRequest
from squall.broker.protocol.schema.init_producer_id import InitProducerIdRequest
from squall.broker.protocol.schema.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from squall.broker.protocol.schema.leave_group import LeaveGroupRequest, MemberIdentity
from squall.broker.protocol.schema.metadata import MetadataRequest, MetadataRequestTopic
from squall.broker.protocol.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from squall.broker.protocol.schema.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from squall.broker.protocol.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from squall.broker.protocol.schema.sync_group import SyncGroupRequest
from squall.broker.protocol.schema.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from squall.broker.protocol.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

Ask = Callable[[Any, int], Awaitable[Any]]
"""Sends a request in a version to the only node, over a listener for clients. Raises OSError if the connection has
ended.
"""

ONE_NODE = {
    "min.insync.replicas": "1",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""Settings that the only node of the cluster needs."""
ZERO, WRONG = bytes(16), bytes(15) + b"\x77"
TOPICS = ("t", "u", "d1", "d2", "d3", "d4")
NAMELESS = ""
NOW_MS = 1_700_000_000_000


class Row(NamedTuple):
    """One request, and which fields of its answer are compared."""

    what: str
    request: Any
    version: int
    wanted: Any


class State(NamedTuple):
    """Ids that requests of the table need, and that differ from cluster to cluster."""

    ids: dict[str, bytes]
    """Topic ids by name."""
    producer: tuple[int, int]
    """Producer id and epoch of the transactional id "x"."""

    def called(self, topic_id: bytes) -> str:
        """Return the name of the topic with this id."""
        known = {ZERO: "0", WRONG: "wrong", **{given: name.upper() for name, given in self.ids.items()}}
        return known[bytes(topic_id)]


async def prepare(ask: Ask) -> State:
    """Create the topics and both coordinators' logs, and wait until all of them serve."""
    topics = [CreatableTopic(name, 1, 1) for name in TOPICS]
    made = (await ask(CreateTopicsRequest(topics, timeout_ms=60_000), 7)).topics
    assert {topic.error_code for topic in made} == {0}
    ids = {topic.name: bytes(topic.topic_id) for topic in made}
    names = [MetadataRequestTopic(name=name) for name in TOPICS]
    await _until(ask, MetadataRequest(names), 12, lambda a: all(_leads(topic) for topic in a.topics))
    for kind in (0, 1):
        find = FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
        await _until(ask, find, 4, lambda a: not a.coordinators[0].error_code)
    groups = [OffsetFetchRequestGroup("g", topics=None)]
    await _until(ask, OffsetFetchRequest(groups=groups), 8, lambda a: not a.groups[0].error_code)
    init = InitProducerIdRequest("x", 60_000)
    found = await _until(ask, init, 4, lambda a: not a.error_code)
    return State(ids, (found.producer_id, found.producer_epoch))


def _leads(topic: Any) -> bool:
    return bool(topic.partitions) and all(part.leader_id >= 0 for part in topic.partitions)


async def _until(ask: Ask, request: Any, version: int, holds: Callable[[Any], bool]) -> Any:
    with trio.fail_after(100):
        while not holds(found := await ask(request, version)):
            await trio.sleep(0.1)
    return found


async def compare(ask: Ask) -> None:
    """Send every row's request, and assert that the answer is Kafka's."""
    state = await prepare(ask)
    found, wanted = {}, {}
    for row in rows(state):
        key = f"{row.what}, version {row.version}"
        assert key not in wanted, key
        found[key] = READ[type(row.request)](await ask(row.request, row.version), state)
        wanted[key] = row.wanted
    assert found == wanted


def rows(state: State) -> Iterator[Row]:
    """Yield the rows of the table in order."""
    yield from _metadata(state)
    yield from _deletions(state)
    yield from _data(state)
    yield from _offsets(state)
    yield from _only_offsets()
    yield from _leaving()
    yield from _nameless(state)
    yield from _markers()
    yield from _odd_lists()


# ------------------------------------------------------------------------------------------------- what is read in them


def _name(code: int) -> str:
    return ErrorCode(code).name


def _of_topics(answer: Any, state: State) -> Any:
    return sorted((topic.name, state.called(topic.topic_id), _name(topic.error_code)) for topic in answer.topics)


def _of_deletions(answer: Any, state: State) -> Any:
    rows = [(each.name, state.called(each.topic_id), _name(each.error_code)) for each in answer.responses]
    return sorted(rows, key=str)


def _errors(of_topics: Callable[[Any], Iterable[Any]], parts: str = "partitions") -> Callable[[Any, State], Any]:
    def read(answer: Any, state: State) -> Any:
        return [_name(part.error_code) for topic in of_topics(answer) for part in getattr(topic, parts)]

    return read


def _of_fetched_offsets(answer: Any, state: State) -> Any:
    topics = [topic for group in answer.groups for topic in group.topics] or answer.topics
    return [(part.committed_offset, _name(part.error_code)) for topic in topics for part in topic.partitions]


def _of_leaving(answer: Any, state: State) -> Any:
    return _name(answer.error_code), *(_name(member.error_code) for member in answer.members)


def _of_error(answer: Any, state: State) -> Any:
    return _name(answer.error_code)


def _of_markers(answer: Any, state: State) -> Any:
    return {
        marker.producer_id: [(t.name, [_name(part.error_code) for part in t.partitions]) for t in marker.topics]
        for marker in answer.markers
    }


READ: dict[type[Any], Callable[[Any, State], Any]] = {
    MetadataRequest: _of_topics,
    DeleteTopicsRequest: _of_deletions,
    FetchRequest: _errors(lambda a: a.responses),
    ProduceRequest: _errors(lambda a: a.responses, "partition_responses"),
    OffsetCommitRequest: _errors(lambda a: a.topics),
    TxnOffsetCommitRequest: _errors(lambda a: a.topics),
    DescribeProducersRequest: _errors(lambda a: a.topics),
    OffsetFetchRequest: _of_fetched_offsets,
    LeaveGroupRequest: _of_leaving,
    JoinGroupRequest: _of_error,
    SyncGroupRequest: _of_error,
    HeartbeatRequest: _of_error,
    ConsumerGroupHeartbeatRequest: _of_error,
    OffsetDeleteRequest: _of_error,
    DescribeGroupsRequest: lambda a, state: [(_name(group.error_code), group.group_state) for group in a.groups],
    DeleteRecordsRequest: _errors(lambda a: a.topics),
    DescribeQuorumRequest: lambda a, state: [_name(a.error_code), *_errors(lambda a: a.topics)(a, state)],
    DeleteGroupsRequest: lambda a, state: [_name(result.error_code) for result in a.results],
    WriteTxnMarkersRequest: _of_markers,
}


# --------------------------------------------------------------------------------------------------------- topics by id


def _metadata(state: State) -> Iterator[Row]:
    t, u = state.ids["t"], state.ids["u"]
    is_t, is_u, unknown = ("t", "T", "NONE"), ("u", "U", "NONE"), (None, "wrong", "UNKNOWN_TOPIC_ID")

    def row(version: int, asked: list[tuple[bytes, str | None]], wanted: list[Any]) -> Row:
        what = f"Metadata of {[(state.called(topic_id), name) for topic_id, name in asked]}"
        topics = [MetadataRequestTopic(topic_id, name) for topic_id, name in asked]
        return Row(what, MetadataRequest(topics, allow_auto_topic_creation=False), version, wanted)

    for version in (10, 11):
        for topic_id, name in ((t, ""), (t, "t"), (t, None), (WRONG, "t"), (ZERO, None)):
            refused = (name or "", state.called(topic_id), "INVALID_REQUEST")
            yield row(version, [(topic_id, name)], [refused])
    for version in (12, 13):
        for name in (None, "", "t", "u", "nope"):
            yield row(version, [(t, name)], [is_t])
        for name in (None, "", "t"):
            yield row(version, [(WRONG, name)], [unknown])
        yield row(version, [(ZERO, "")], [("", "0", "INVALID_TOPIC_EXCEPTION")])
        yield row(version, [(ZERO, "nope")], [("nope", "0", "UNKNOWN_TOPIC_OR_PARTITION")])
        yield row(version, [(ZERO, None)], [("", "0", "UNKNOWN_SERVER_ERROR")])
        yield row(version, [(ZERO, "u"), (ZERO, None)], [(n, "0", "UNKNOWN_SERVER_ERROR") for n in ("", "u")])
        yield row(version, [(ZERO, "u"), (t, "")], [is_t])
        yield row(version, [(t, ""), (u, ""), (t, None)], [is_t, is_u])
        yield row(version, [(WRONG, ""), (ZERO, "u")], [unknown])


def _deletions(state: State) -> Iterator[Row]:
    ids = state.ids

    def row(*asked: tuple[bytes, str | None], wanted: list[Any]) -> Row:
        what = f"DeleteTopics of {[(state.called(topic_id), name) for topic_id, name in asked]}"
        topics = [DeleteTopicState(name, topic_id) for topic_id, name in asked]
        return Row(what, DeleteTopicsRequest(topics=topics, timeout_ms=60_000), 6, wanted)

    d1, d4, refused = ids["d1"], ids["d4"], "INVALID_REQUEST"
    yield row((d1, ""), wanted=[("", "D1", refused)])
    yield row((d1, "d1"), wanted=[("d1", "D1", refused)])
    yield row((WRONG, None), wanted=[(None, "wrong", "UNKNOWN_TOPIC_ID")])
    yield row((WRONG, ""), wanted=[("", "wrong", refused)])
    yield row((ZERO, None), wanted=[(None, "0", refused)])
    yield row((ZERO, ""), wanted=[("", "0", "UNKNOWN_TOPIC_OR_PARTITION")])
    yield row((d4, None), (d4, None), wanted=[(None, "D4", refused)])
    yield row((ZERO, "d4"), (ZERO, "d4"), wanted=[("d4", "0", refused)])
    yield row((d4, None), (ZERO, "d4"), wanted=[("d4", "D4", refused)])
    yield row((d4, None), (d4, None), (ZERO, "d4"), wanted=[("d4", "D4", refused), (None, "D4", refused)])
    yield row((ZERO, None), (ZERO, None), wanted=[(None, "0", refused)] * 2)
    yield row((d4, None), (WRONG, None), wanted=[("d4", "D4", "NONE"), (None, "wrong", "UNKNOWN_TOPIC_ID")])
    yield row((d1, None), (ZERO, "d2"), wanted=[("d1", "D1", "NONE"), ("d2", "D2", "NONE")])


def _data(state: State) -> Iterator[Row]:
    batch = bytes(encode_batch([Record(0, NOW_MS, None, b"v")]))
    for name, topic_id, index, error in (
        ("T", state.ids["t"], 0, "NONE"),
        ("T", state.ids["t"], 9, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("wrong", WRONG, 0, "UNKNOWN_TOPIC_ID"),
        ("0", ZERO, 0, "UNKNOWN_TOPIC_ID"),
    ):
        for version in (13, 18):
            part = FetchPartition(partition=index, partition_max_bytes=1 << 20)
            topics = [FetchTopic(topic_id=topic_id, partitions=[part])]
            fetch = FetchRequest(max_wait_ms=0, session_epoch=-1, topics=topics)
            yield Row(f"Fetch of {name}-{index}", fetch, version, [error])
        records = PartitionProduceData(index, batch)
        given = [TopicProduceData(topic_id=topic_id, partition_data=[records])]
        produce = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=given)
        yield Row(f"Produce to {name}-{index}", produce, 13, [error])


# ------------------------------------------------------------------------------------------------------------ positions


def commit(
    group: str, epoch: int = -1, member: str = "", instance: str | None = None, *, topic: str = "t", **by_id: Any
) -> OffsetCommitRequest:
    """Return an OffsetCommit of offset 1 for partition 0 of a topic."""
    part = OffsetCommitRequestPartition(by_id.pop("index", 0), committed_offset=1)
    topics = [OffsetCommitRequestTopic(topic, partitions=[part], **by_id)]
    return OffsetCommitRequest(group, epoch, member, group_instance_id=instance, topics=topics)


def positions(group: str, *, topic: str = "t", index: int = 0, **by_id: Any) -> OffsetFetchRequest:
    """Return an OffsetFetch of one partition."""
    topics = [OffsetFetchRequestTopics(topic, partition_indexes=[index], **by_id)]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])


def _offsets(state: State) -> Iterator[Row]:
    t, unknown = state.ids["t"], "UNKNOWN_TOPIC_OR_PARTITION"
    for name, topic_id, index, error, found in (
        ("T", t, 0, "NONE", (1, "NONE")),
        ("T", t, 9, unknown, (-1, "NONE")),
        ("wrong", WRONG, 0, "UNKNOWN_TOPIC_ID", (-1, "UNKNOWN_TOPIC_ID")),
        ("0", ZERO, 0, "UNKNOWN_TOPIC_ID", (-1, "UNKNOWN_TOPIC_ID")),
    ):
        by_id = {"topic": "", "topic_id": topic_id, "index": index}
        yield Row(f"OffsetCommit of {name}-{index}", commit("g", **by_id), 10, [error])
        yield Row(f"OffsetFetch of {name}-{index}", positions("g", **by_id), 10, [found])
    for name in ("", "nope"):
        yield Row(f"OffsetCommit of {name!r}", commit("g", topic=name), 9, [unknown])
        yield Row(f"OffsetFetch of {name!r}", positions("g", topic=name), 9, [(-1, "NONE")])


def _only_offsets() -> Iterator[Row]:
    """Yield rows with requests of members to a group that has offsets but no members, and to one that does not exist.
    """
    yield Row("first OffsetCommit to a simple group", commit("simple"), 9, ["NONE"])
    for version, absent in ((2, "ILLEGAL_GENERATION"), (8, "ILLEGAL_GENERATION"), (9, "GROUP_ID_NOT_FOUND")):
        for epoch, member in ((0, "m"), (5, "m"), (5, "")):
            asked = f"OffsetCommit of {member!r} in {epoch} to"
            yield Row(f"{asked} a simple group", commit("simple", epoch, member), version, ["UNKNOWN_MEMBER_ID"])
            yield Row(f"{asked} no group", commit("none", epoch, member), version, [absent])
        yield Row("OffsetCommit of 'm' in -1 to a simple group", commit("simple", -1, "m"), version, ["NONE"])
    instance = commit("simple", 5, "m", "i")
    yield Row("OffsetCommit of an instance to a simple group", instance, 9, ["UNKNOWN_MEMBER_ID"])
    for kind, name in ((None, None), ("consumer", None), (None, "range")):
        sync = SyncGroupRequest("simple", 5, "m", None, kind, name)
        yield Row(f"SyncGroup of {kind} {name} to a simple group", sync, 5, "INCONSISTENT_GROUP_PROTOCOL")
    sync = SyncGroupRequest("simple", 5, "m", None, "consumer", "range")
    yield Row("SyncGroup to a simple group", sync, 5, "UNKNOWN_MEMBER_ID")
    yield Row("Heartbeat to a simple group", HeartbeatRequest("simple", 5, "m"), 4, "UNKNOWN_MEMBER_ID")


def _leaving() -> Iterator[Row]:
    """Yield rows in which members of the consumer protocol leave by LeaveGroup, as when an admin removes them."""
    for member, instance in (("m1", None), ("m2", None), ("m3", "i3"), ("m4", "i4"), ("m5", None), ("m6", None)):
        joins = ConsumerGroupHeartbeatRequest(
            "c", member, 0, instance, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[]
        )
        yield Row(f"{member} joins", joins, 1, "NONE")
    unknown = "UNKNOWN_MEMBER_ID"
    for members, errors in (
        ([("m1", None)], ["NONE"]),
        ([("m1", None), ("", None), ("nobody", None)], [unknown] * 3),
        ([("m4", "i3"), ("m5", "i9"), ("", "i9")], ["FENCED_INSTANCE_ID", unknown, unknown]),
        ([("m3", "i3"), ("", "i4")], ["NONE", "NONE"]),
        ([("m2", None), ("m2", None)], ["NONE", "NONE"]),
    ):
        leave = LeaveGroupRequest("c", members=[MemberIdentity(*who) for who in members])
        yield Row(f"{members} leave", leave, 5, ("NONE", *errors))
    for version, member in ((0, "m5"), (2, "m6")):
        yield Row(f"{member} leaves", LeaveGroupRequest("c", member), version, ("NONE",))


def _nameless(state: State) -> Iterator[Row]:
    """Yield rows about the group with the empty name. It has no members, but simple consumers of old Kafka versions
    commit offsets to it.
    """
    invalid, m = "INVALID_GROUP_ID", "m"
    protocols = [JoinGroupRequestProtocol("range", b"")]
    join = JoinGroupRequest(NAMELESS, 10_000, 10_000, m, None, "consumer", protocols)
    yield Row("nameless JoinGroup", join, 9, invalid)
    sync = SyncGroupRequest(NAMELESS, 1, m, None, "consumer", "range")
    yield Row("nameless SyncGroup", sync, 5, invalid)
    yield Row("nameless Heartbeat", HeartbeatRequest(NAMELESS, 1, m), 4, invalid)
    yield Row("nameless LeaveGroup", LeaveGroupRequest(NAMELESS, m), 2, (invalid,))
    for members in ([], [MemberIdentity(m)]):
        leave = LeaveGroupRequest(NAMELESS, members=members)
        yield Row(f"nameless LeaveGroup of {len(members)}", leave, 5, (invalid,))
    beat = ConsumerGroupHeartbeatRequest(NAMELESS, m, 0, rebalance_timeout_ms=60_000, topic_partitions=[])
    yield Row("nameless ConsumerGroupHeartbeat", beat, 1, "INVALID_REQUEST")
    deletion = OffsetDeleteRequest(NAMELESS, [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])])
    yield Row("nameless OffsetDelete", deletion, 0, invalid)
    yield Row("nameless DescribeGroups", DescribeGroupsRequest([NAMELESS]), 5, [("NONE", "Dead")])
    yield Row("nameless DescribeGroups", DescribeGroupsRequest([NAMELESS]), 6, [("GROUP_ID_NOT_FOUND", "Dead")])
    yield Row("nameless DeleteGroups", DeleteGroupsRequest([NAMELESS]), 2, ["GROUP_ID_NOT_FOUND"])
    yield Row("nameless OffsetCommit of a member", commit(NAMELESS, 5, m), 9, ["GROUP_ID_NOT_FOUND"])
    yield Row("nameless OffsetCommit", commit(NAMELESS), 2, ["NONE"])
    yield Row("nameless OffsetCommit again", commit(NAMELESS, -1, m), 9, ["NONE"])
    yield Row("nameless OffsetCommit of a member", commit(NAMELESS, 5, m), 8, ["UNKNOWN_MEMBER_ID"])
    old = OffsetFetchRequest(group_id=NAMELESS, topics=[OffsetFetchRequestTopic("t", [0])])
    yield Row("nameless OffsetFetch", old, 1, [(1, "NONE")])
    yield Row("nameless OffsetFetch", positions(NAMELESS), 9, [(1, "NONE")])
    for version in (5, 6):
        describe = DescribeGroupsRequest([NAMELESS])
        yield Row("nameless DescribeGroups with offsets", describe, version, [("NONE", "Empty")])
    yield Row("nameless OffsetDelete with offsets", deletion, 0, invalid)
    yield Row("nameless DeleteGroups with offsets", DeleteGroupsRequest([NAMELESS]), 2, ["NONE"])
    for group, epoch, wanted in (
        (NAMELESS, -1, invalid),
        ("simple", 5, "UNKNOWN_MEMBER_ID"),
        ("nobody", 5, "ILLEGAL_GENERATION"),
        ("simple", -1, "NONE"),
    ):
        topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 5)])]
        commits = TxnOffsetCommitRequest("x", group, *state.producer, epoch, m, None, topics)
        yield Row(f"TxnOffsetCommit to {group!r} in {epoch}", commits, 5, [wanted])
        if group == NAMELESS:
            yield Row("nameless TxnOffsetCommit without a transaction", commits, 3, [wanted])


# -------------------------------------------------------------------------------------------------------------- markers


def _markers() -> Iterator[Row]:
    """Yield rows in which an admin ends transactions that no coordinator ends (KIP-664)."""

    def marker(
        producer: int, epoch: int, topic: str = "t", *parts: int, coordinator: int = 0, generation: int = 0
    ) -> WritableTxnMarker:
        topics = [WritableTxnMarkerTopic(topic, list(parts or (0,)))]
        return WritableTxnMarker(producer, epoch, False, topics, coordinator, generation)

    def row(what: str, *markers: WritableTxnMarker, wanted: str) -> Row:
        answer = {markers[0].producer_id: [(markers[0].topics[0].name, [wanted])]}
        return Row(f"marker {what}", WriteTxnMarkersRequest(list(markers)), 2, answer)

    yield Row("no markers", WriteTxnMarkersRequest([]), 1, {})
    yield row("of an unknown producer", marker(7000, 5), wanted="NONE")
    yield row("sent again", marker(7000, 5, generation=2), wanted="NONE")
    yield row("of an older epoch", marker(7000, 4), wanted="INVALID_PRODUCER_EPOCH")
    yield row("of an older coordinator", marker(7000, 5, coordinator=-1), wanted="TRANSACTION_COORDINATOR_FENCED")
    yield row("of a newer coordinator", marker(7000, 5, coordinator=3), wanted="NONE")
    yield row("of no producer", marker(-1, 5), wanted="UNKNOWN_SERVER_ERROR")
    yield row("of no epoch", marker(7001, -1), wanted="UNKNOWN_SERVER_ERROR")
    for topic in ("nope", "", "bad name", "__cluster_metadata"):
        yield row(f"for {topic!r}", marker(7000, 5, topic), wanted="UNKNOWN_TOPIC_OR_PARTITION")
    for topic in ("__consumer_offsets", "__transaction_state"):
        yield row(f"for {topic}", marker(7002, 5, topic), wanted="NONE")
    both = WriteTxnMarkersRequest([marker(7003, 5, "t", 0, 9), marker(7003, 5, "u")])
    answer = {7003: [("t", ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"]), ("u", ["NONE"])]}
    yield Row("two markers of a producer", both, 1, answer)
    for topic, error in (
        ("t", "NONE"),
        ("nope", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("", "INVALID_TOPIC_EXCEPTION"),
        ("bad name", "INVALID_TOPIC_EXCEPTION"),
    ):
        yield Row(f"producers of {topic!r}", DescribeProducersRequest([TopicRequest(topic, [0])]), 0, [error])


# --------------------------------------------------------------------------------------------------------------- lists


def _odd_lists() -> Iterator[Row]:
    """Yield rows whose requests name a partition twice, or a topic without partitions."""
    batch = bytes(encode_batch([Record(0, NOW_MS, None, b"v")]))
    for parts, topics in ((0, 1), (2, 1), (1, 2)):
        wanted = ["NONE"] * min(1, parts)
        data = [TopicProduceData("t", partition_data=[PartitionProduceData(0, batch)] * parts)] * topics
        for version in (3, 9):
            send = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=data)
            yield Row(f"Produce to {topics} times {parts}", send, version, wanted)
        gone = [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 0)] * parts)] * topics
        yield Row(f"DeleteRecords of {topics} times {parts}", DeleteRecordsRequest(gone, 60_000), 2, wanted)
    yield Row("DeleteGroups of one twice", DeleteGroupsRequest(["nope", "nope"]), 2, ["GROUP_ID_NOT_FOUND"])
    for topic, indexes in (("__cluster_metadata", (0, 0)), ("__cluster_metadata", ()), ("t", (0,))):
        asked = [DescribeQuorumRequestTopicData(topic, [DescribeQuorumRequestPartitionData(i) for i in indexes])]
        unknown = ["UNKNOWN_TOPIC_OR_PARTITION"] * len(indexes)
        yield Row(f"DescribeQuorum of {topic} {indexes}", DescribeQuorumRequest(asked), 2, ["NONE", *unknown])
