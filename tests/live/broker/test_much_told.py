"""Few bytes that ask for much to be told: they keep nobody waiting, and fill no memory, whoever reads the answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from broker.protocol.apis import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.header import encode_request
from broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from broker.protocol.schema.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from broker.protocol.schema.list_groups import ListGroupsRequest
from broker.protocol.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from broker.protocol.schema.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from tests.support.brokers.broker_process import BrokerProcess, ask, receive_frame
from tests.support.brokers.bystander import Bystander
from tests.support.brokers.joining import join

PATIENCE_S = 1.0
"""What a bystander may wait on a busy machine. Each of these once took the broker for longer, or ended it."""
PARTITIONS = 300
LIMITS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "squall.replies.max.bytes": str(64 << 20),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With a topic "offsets", and a coordinator that serves."""
    made = BrokerProcess(tmp_path_factory.mktemp("much-told"), LIMITS)
    try:
        assert join(made, "first") is ErrorCode.MEMBER_ID_REQUIRED
        topic = CreatableTopic(name="offsets", num_partitions=PARTITIONS, replication_factor=1)
        with made.connect() as client:
            client.settimeout(60)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
            created: Any = ask(client, request, CreateTopicsResponse, 7)
        assert created.topics[0].error_code == 0
        logs = made.trace.parent / "data"
        made.wait_for(lambda: len(list(logs.glob("offsets-*"))) == PARTITIONS, 60)
        yield made
        assert made.process.poll() is None, f"the broker ended: {made.log.read_text()[-2000:]}"
    finally:
        made.stop()


def commit(client: socket.socket, group_id: str, size: int) -> set[ErrorCode]:
    """A position of each partition of "offsets", with so many bytes of metadata. What becomes of them."""
    found = set()
    for begin in range(0, PARTITIONS, 100):
        parts = [
            OffsetCommitRequestPartition(number, committed_offset=1, committed_metadata="x" * size)
            for number in range(begin, begin + 100)
        ]
        topics = [OffsetCommitRequestTopic("offsets", partitions=parts)]
        answer: Any = ask(client, OffsetCommitRequest(group_id=group_id, topics=topics), OffsetCommitResponse, 8)
        found |= {ErrorCode(part.error_code) for part in answer.topics[0].partitions}
    return found


def test_what_is_told_of_a_group_is_told_once(broker: BrokerProcess) -> None:
    """80 KB that named one group 20,000 times asked for gigabytes, and the broker had not as many."""
    assert join(broker, "named") is ErrorCode.MEMBER_ID_REQUIRED
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("named", topics=None)] * 20_000)
    before = broker.rss_mb()
    with broker.connect() as client, Bystander(broker) as bystander:
        client.settimeout(60)
        committed = commit(client, "named", 700)
        fetched: Any = ask(client, fetch, OffsetFetchResponse, 8)
        described: Any = ask(client, DescribeGroupsRequest(groups=["named"] * 20_000), DescribeGroupsResponse, 5)
    assert committed == {ErrorCode.NONE}
    assert [len(group.topics[0].partitions) for group in fetched.groups if group.topics] == [PARTITIONS]
    for groups in (fetched.groups, described.groups):
        assert {group.error_code for group in groups[1:]} == {ErrorCode.INVALID_REQUEST}
    assert described.groups[0].error_code == 0
    assert broker.rss_mb() < before + 60
    assert bystander.slowest_s < PATIENCE_S


@pytest.mark.parametrize("stable", [False, True])
def test_many_who_ask_for_all_positions_of_many_groups_keep_nobody_waiting(stable: bool, broker: BrokerProcess) -> None:
    """Four hundred requests of 120 bytes got a broker fenced. Those who have left cost nothing."""
    names = [f"many-{number}" for number in range(50)]
    with broker.connect() as client:
        client.settimeout(60)
        assert [commit(client, name, 300) for name in names] == [{ErrorCode.NONE}] * 50
    groups = [OffsetFetchRequestGroup(name, topics=None) for name in names]
    request = OffsetFetchRequest(groups=groups, require_stable=stable)
    asked = encode_request(ApiKey.OFFSET_FETCH, 8, 7, "test", request.encode(8))
    clients = [broker.connect() for _ in range(60)]
    try:
        with Bystander(broker) as bystander:
            for client in clients:
                client.settimeout(100)
                client.sendall(asked)
            for client in clients[10:]:
                client.close()
            answers = [receive_frame(client) for client in clients[:10]]
        assert {len(answer) > 50 * PARTITIONS * 300 for answer in answers} == {True}
        assert bystander.slowest_s < PATIENCE_S
    finally:
        for client in clients:
            client.close()


def test_answers_that_nobody_reads_have_a_limit(broker: BrokerProcess) -> None:
    """A few kilobytes of requests for all positions of a group filled gigabytes, and then ended the broker."""
    with broker.connect() as client:
        client.settimeout(60)
        assert commit(client, "unread", 4096) == {ErrorCode.NONE}
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("unread", topics=None)])
    asked = encode_request(ApiKey.OFFSET_FETCH, 8, 7, "test", request.encode(8))
    before = broker.rss_mb()
    clients = [broker.connect() for _ in range(40)]
    try:
        with Bystander(broker) as bystander:
            for client in clients:
                client.sendall(asked * 10)
            broker.wait_for(lambda: sum(event["e"] == "replies_dropped" for event in broker.events()) >= 10, 60)
            assert broker.rss_mb() < before + 200
        assert bystander.slowest_s < PATIENCE_S
        with broker.connect() as client:
            client.settimeout(60)
            answer: Any = ask(client, request, OffsetFetchResponse, 8)
        assert len(answer.groups[0].topics[0].partitions) == PARTITIONS
    finally:
        for client in clients:
            client.close()


def test_many_who_list_thousands_of_groups_keep_nobody_waiting(broker: BrokerProcess) -> None:
    """4,200 bytes of ListGroups made others wait for 11 s."""
    topics = [OffsetCommitRequestTopic("offsets", partitions=[OffsetCommitRequestPartition(0, committed_offset=1)])]
    clients = [broker.connect() for _ in range(60)]
    try:
        for number in range(3000):
            made = OffsetCommitRequest(group_id=f"listed-{number}", topics=topics)
            clients[0].sendall(encode_request(ApiKey.OFFSET_COMMIT, 8, 7, "test", made.encode(8)))
        clients[0].settimeout(60)
        for _ in range(3000):
            receive_frame(clients[0])
        asked = encode_request(ApiKey.LIST_GROUPS, 4, 7, "test", ListGroupsRequest().encode(4))
        with Bystander(broker) as bystander:
            for client in clients:
                client.settimeout(100)
                client.sendall(asked)
            answers = [receive_frame(client) for client in clients]
        assert min(map(len, answers)) > 3000 * 10
        assert bystander.slowest_s < PATIENCE_S
    finally:
        for client in clients:
            client.close()
