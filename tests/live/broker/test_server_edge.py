"""One client that misuses connections and buffers of a broker does not affect other clients and brokers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from struct import pack
from typing import Any

import pytest

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest
from squall.broker.protocol.schema.describe_topic_partitions import DescribeTopicPartitionsRequest
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from squall.broker.protocol.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from squall.broker.protocol.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from squall.broker.protocol.schema.metadata import MetadataRequest
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.brokers.broker_process import BrokerProcess
from tests.support.brokers.raw_client import RawClient, frame_of

MOST_BYTES = 1 << 20
"""The most bytes of responses between two yields. A task yields after 5 ms, in which even a twenty times faster machine
would not write so many.
"""
MAX_CONNECTIONS = 60
MIB = 1 << 20


class TwoListenerBroker(BrokerProcess):
    """A broker with a listener for clients and, at `inner_port`, one between brokers."""

    def __init__(self, folder: Any) -> None:
        with socket.socket() as outer, socket.socket() as inner:
            for free in (outer, inner):
                free.bind(("127.0.0.1", 0))
            outer_port, self.inner_port = outer.getsockname()[1], inner.getsockname()[1]
        settings = {
            "listeners": f"CLIENT://127.0.0.1:{outer_port},INTERNAL://127.0.0.1:{self.inner_port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.inner_port}",
            "max.connections": str(MAX_CONNECTIONS),
            "queued.max.request.bytes": str(16 * MIB),
            "socket.request.max.bytes": str(8 * MIB),
            "squall.connection.parked.max.bytes": str(4 * MIB),
        }
        super().__init__(folder, settings)
        self.port = outer_port

    def connect_as_broker(self) -> RawClient:
        return RawClient(self.inner_port)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoListenerBroker]:
    made = TwoListenerBroker(tmp_path_factory.mktemp("server-edge"))
    try:
        with made.connect() as client:
            topics = [
                CreatableTopic(name="wide", num_partitions=500, replication_factor=1),
                CreatableTopic(name="t", num_partitions=1, replication_factor=1),
            ]
            created = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
            assert [topic.error_code for topic in created.topics] == [0, 0]
        yield made
        assert made.process.poll() is None, f"the broker ended: {made.log.read_text()[-2000:]}"
    finally:
        made.stop()


@pytest.mark.gate
def test_many_small_requests_at_once_keep_nobody_waiting_and_take_bounded_memory(broker: TwoListenerBroker) -> None:
    """For 66 KB of requests a broker once listed 1,000 partitions 3,000 times before it served other clients."""
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2000)
    burst = b"".join(frame_of(request, 0, number, None) for number in range(2500))
    assert len(burst) < 1 << 16
    before = broker.rss_mb()
    broker.longest_turn()
    with broker.connect() as client:
        client.send(burst)
        assert [client.frame()[:4] for _ in range(200)] == [pack(">i", number) for number in range(200)]
        broker.assert_serves()
    turn = broker.longest_turn()
    assert turn.bytes < MOST_BYTES, turn
    assert broker.rss_mb() < before + 40


def test_a_client_that_names_a_replica_is_a_consumer_and_a_broker_is_a_follower(broker: TwoListenerBroker) -> None:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)
    topics = [FetchTopic(topic="t", partitions=[part])]
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    listed = ListOffsetsRequest(replica_id=2, topics=[asked])
    fetch = FetchRequest(replica_id=2, max_wait_ms=0, session_epoch=-1, topics=topics)
    found = []
    for connect in (broker.connect, broker.connect_as_broker):
        with connect() as client:
            broker.wait_for(lambda: not client.ask(listed, 7).topics[0].partitions[0].error_code)
            found.append(client.ask(fetch, 11).responses[0].partitions[0].error_code)
    assert found == [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER], "broker 2 has no replica of it"


def test_clients_that_have_all_connections_keep_no_broker_out(broker: TwoListenerBroker) -> None:
    crowd = [broker.connect() for _ in range(MAX_CONNECTIONS + 20)]
    assert crowd[-1].is_closed()
    with broker.connect_as_broker() as inside:
        inside.ask(MetadataRequest(topics=None), 12)
    for client in crowd:
        client.close()
    broker.wait_for(lambda: is_served(broker))


def is_served(broker: TwoListenerBroker) -> bool:
    try:
        broker.assert_serves()
    except (AssertionError, OSError):
        return False
    return True


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
@pytest.mark.parametrize("of", ["", "1"])
def test_a_limit_that_would_lock_everybody_out_is_refused(broker: TwoListenerBroker, name: str, of: str) -> None:
    """A request of 45 bytes once locked all clients out for good."""
    config = AlterableConfig(name=name, config_operation=0, value="0")
    resource = AlterConfigsResource(resource_type=4, resource_name=of, configs=[config])
    with broker.connect() as client:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = client.ask(request, 1)
    [told] = answer.responses
    assert told.error_code == ErrorCode.INVALID_REQUEST
    assert told.error_message == f"{name}=0 would lock out every client, also the one that undoes it"
    broker.assert_serves()


@pytest.mark.parametrize("sent", [70_000, 1_100_000])
def test_clients_that_announce_much_and_send_little_keep_nobody_from_sending(
    broker: TwoListenerBroker, sent: int
) -> None:
    """They had once reserved all of the receive memory, and other connections were closed after 10 s."""
    crowd = [broker.connect() for _ in range(20)]
    for client in crowd:
        client.send(pack(">ihhih", 7_900_000, 0, 9, 1, -1) + bytes(sent))
    data = TopicProduceData("none", partition_data=[PartitionProduceData(index=0, records=bytes(100_000))])
    for _ in range(3):
        with broker.connect() as client:
            client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9)
    for client in crowd:
        client.close()
