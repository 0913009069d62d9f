"""A link answers in a broker's stead: the error is wherever the API's response has a place for it."""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.header import decode_response_header, encode_request
from squall.broker.protocol.schema.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from squall.broker.protocol.schema.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from squall.broker.protocol.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from squall.broker.protocol.schema.end_txn import EndTxnRequest, EndTxnResponse
from squall.broker.protocol.schema.heartbeat import HeartbeatRequest, HeartbeatResponse
from squall.broker.protocol.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from squall.broker.protocol.schema.join_group import JoinGroupRequest, JoinGroupResponse
from squall.broker.protocol.schema.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from squall.broker.protocol.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from squall.broker.protocol.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from squall.broker.protocol.schema.sync_group import SyncGroupRequest, SyncGroupResponse
from squall.broker.protocol.schema.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from squall.broker.protocol.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from squall.broker.protocol.wire import Message
from squall.chaos.runtimes.wire.frames import SIZE, error_answer

ERROR = int(ErrorCode.NOT_COORDINATOR)


def answered(request: Message, response: type[Message], version: int) -> Any:
    """Return what a client reads of the link's answer."""
    frame = encode_request(request.API_KEY, version, 7, "test", request.encode(version))
    answer = error_answer(bytes(frame), ERROR)
    assert answer is not None
    view = memoryview(answer)[SIZE:]
    correlation_id, at = decode_response_header(view, request.API_KEY, version)
    assert correlation_id == 7
    return response.decode(view, at, version)[0]


@pytest.mark.parametrize("version", range(EndTxnRequest.MIN_VERSION, EndTxnRequest.MAX_VERSION + 1))
def test_end_txn(version: int) -> None:
    answer = answered(EndTxnRequest("squall-0", 4000, 3, True), EndTxnResponse, version)
    assert answer.error_code == ERROR


@pytest.mark.parametrize("version", range(InitProducerIdRequest.MIN_VERSION, InitProducerIdRequest.MAX_VERSION + 1))
def test_init_producer_id(version: int) -> None:
    assert answered(InitProducerIdRequest("squall-0", 4000), InitProducerIdResponse, version).error_code == ERROR


@pytest.mark.parametrize("version", range(4))
def test_add_partitions_of_clients_has_the_error_at_every_partition(version: int) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="squall-0",
        v3_and_below_topics=[AddPartitionsToTxnTopic("t", [0, 2]), AddPartitionsToTxnTopic("u", [1])],
    )
    answer = answered(request, AddPartitionsToTxnResponse, version)
    told = [
        (topic.name, part.partition_index, part.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for part in topic.results_by_partition
    ]
    assert told == [("t", 0, ERROR), ("t", 2, ERROR), ("u", 1, ERROR)]


@pytest.mark.parametrize("version", (4, 5))
def test_add_partitions_of_brokers_has_the_error_at_every_partition_of_every_transaction(version: int) -> None:
    one = AddPartitionsToTxnTransaction("squall-0", 4000, 3, topics=[AddPartitionsToTxnTopic("t", [0, 2])])
    answer = answered(AddPartitionsToTxnRequest(transactions=[one]), AddPartitionsToTxnResponse, version)
    (told,) = answer.results_by_transaction
    assert told.transactional_id == "squall-0"
    (topic,) = told.topic_results
    assert [(part.partition_index, part.partition_error_code) for part in topic.results_by_partition] == [
        (0, ERROR),
        (2, ERROR),
    ]


@pytest.mark.parametrize("version", (1, 2))
def test_markers_have_the_error_at_every_partition(version: int) -> None:
    marker = WritableTxnMarker(4000, 3, True, [WritableTxnMarkerTopic("t", [0, 2])], coordinator_epoch=1)
    answer = answered(WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse, version)
    (told,) = answer.markers
    assert told.producer_id == 4000
    (topic,) = told.topics
    assert (topic.name, [(part.partition_index, part.error_code) for part in topic.partitions]) == (
        "t",
        [(0, ERROR), (2, ERROR)],
    )


def versions(request: type[Message]) -> range:
    return range(request.MIN_VERSION, request.MAX_VERSION + 1)


OF_MEMBERS: list[tuple[Message, type[Message]]] = [
    (JoinGroupRequest(group_id="g", member_id="m", protocol_type="consumer"), JoinGroupResponse),
    (SyncGroupRequest(group_id="g", member_id="m", generation_id=3), SyncGroupResponse),
    (HeartbeatRequest(group_id="g", member_id="m", generation_id=3), HeartbeatResponse),
    (LeaveGroupRequest("g"), LeaveGroupResponse),
    (AddOffsetsToTxnRequest("squall-0", 4000, 3, "g"), AddOffsetsToTxnResponse),
    (ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=5), ConsumerGroupHeartbeatResponse),
]


@pytest.mark.parametrize(
    ("request_", "response", "version"),
    [(request, response, version) for request, response in OF_MEMBERS for version in versions(type(request))],
)
def test_what_a_member_of_a_group_is_told(request_: Message, response: type[Message], version: int) -> None:
    assert answered(request_, response, version).error_code == ERROR


@pytest.mark.parametrize("version", range(3, LeaveGroupRequest.MAX_VERSION + 1))
def test_members_that_leave_have_the_error_each(version: int) -> None:
    request = LeaveGroupRequest("g", members=[MemberIdentity("m"), MemberIdentity("n", "n-0")])
    told = answered(request, LeaveGroupResponse, version).members
    assert [(each.member_id, each.group_instance_id or None, each.error_code) for each in told] == [
        ("m", None, ERROR),
        ("n", "n-0", ERROR),
    ]


@pytest.mark.parametrize("version", range(OffsetCommitRequest.MIN_VERSION, 10))
def test_a_commit_has_the_error_at_every_partition(version: int) -> None:
    topic = OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(each, 9) for each in (0, 2)])
    (told,) = answered(OffsetCommitRequest("g", topics=[topic]), OffsetCommitResponse, version).topics
    assert (told.name, [(each.partition_index, each.error_code) for each in told.partitions]) == (
        "t",
        [(0, ERROR), (2, ERROR)],
    )


@pytest.mark.parametrize("version", versions(TxnOffsetCommitRequest))
def test_offsets_of_a_transaction_have_the_error_at_every_partition(version: int) -> None:
    topic = TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(each, 9) for each in (0, 2)])
    request = TxnOffsetCommitRequest("squall-0", "g", 4000, 3, topics=[topic])
    (told,) = answered(request, TxnOffsetCommitResponse, version).topics
    assert [(each.partition_index, each.error_code) for each in told.partitions] == [(0, ERROR), (2, ERROR)]


@pytest.mark.parametrize("version", range(OffsetFetchRequest.MIN_VERSION, 10))
def test_committed_offsets_have_the_error_and_no_offset(version: int) -> None:
    if version < 8:
        answer = answered(
            OffsetFetchRequest("g", topics=[OffsetFetchRequestTopic("t", [0, 2])]), OffsetFetchResponse, version
        )
        assert version < 2 or answer.error_code == ERROR
    else:
        group = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0, 2])])
        (answer,) = answered(OffsetFetchRequest(groups=[group]), OffsetFetchResponse, version).groups
        assert (answer.group_id, answer.error_code) == ("g", ERROR)
    (told,) = answer.topics
    assert [(each.partition_index, each.committed_offset, each.error_code) for each in told.partitions] == [
        (0, -1, ERROR),
        (2, -1, ERROR),
    ]
