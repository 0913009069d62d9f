"""Requests of one connection take effect in the order in which they came, as raw bytes on a socket show.

Four pipelined IncrementalAlterConfigs once ended with a wrong value 15 times of 20 (Apache Kafka: 0 of 20).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from broker.protocol.header import decode_response_header, encode_request
from broker.protocol.records import Record, encode_batch
from broker.protocol.schema import delete_records as deleting
from broker.protocol.schema import incremental_alter_configs as altering
from broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from broker.protocol.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from broker.protocol.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.support.brokers.broker_process import BrokerProcess, ask, receive_frame

TOPIC, TIMES, PIPELINED, RECORDS = 2, 20, 4, 20
Sent = tuple[Any, type[Any], int]
"""A request, the class of its answer, and their version."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path_factory.mktemp("one-order"))
    try:
        with made.connect() as client:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            created: Any = ask(client, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse, 7)
            assert [t.error_code for t in created.topics] == [0]
        yield made
    finally:
        made.stop()


def pipeline(client: socket.socket, *sent: Sent) -> list[Any]:
    """The answers to requests that were all sent before the first answer was read."""
    frames = [
        encode_request(request.API_KEY, version, number, "raw", request.encode(version))
        for number, (request, _, version) in enumerate(sent)
    ]
    client.sendall(b"".join(frames))
    answers = []
    for number, (request, response, version) in enumerate(sent):
        frame = memoryview(receive_frame(client))
        correlation_id, at = decode_response_header(frame, request.API_KEY, version)
        assert correlation_id == number, "answers leave in the order of their requests"
        answers.append(response.decode(frame, at, version)[0])
    return answers


def alter(value: int) -> Sent:
    config = altering.AlterableConfig(name="retention.ms", config_operation=0, value=str(value))
    resource = altering.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
    request = altering.IncrementalAlterConfigsRequest(resources=[resource])
    return request, altering.IncrementalAlterConfigsResponse, 1


def describe() -> Sent:
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=["retention.ms"])
    return DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse, 4


def log_start() -> Sent:
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-2)])
    return ListOffsetsRequest(replica_id=-1, topics=[topic]), ListOffsetsResponse, 7


def delete_before(offset: int) -> Sent:
    part = deleting.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = deleting.DeleteRecordsTopic(name="t", partitions=[part])
    return deleting.DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), deleting.DeleteRecordsResponse, 2


def test_of_pipelined_changes_of_a_setting_the_last_one_stays_and_what_follows_sees_it(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        for n in range(TIMES):
            values = [1_000_000 + PIPELINED * n + i for i in range(PIPELINED)]
            *altered, described = pipeline(client, *map(alter, values), describe())
            assert [answer.responses[0].error_code for answer in altered] == [0] * PIPELINED
            [config] = described.results[0].configs
            assert config.value == str(values[-1])


def test_a_look_at_the_logs_start_behind_delete_records_sees_the_new_start(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        batch = encode_batch([Record(n, 1_000, None, b"v") for n in range(RECORDS)])
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
        produced: Any = ask(client, ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), ProduceResponse, 9)
        assert produced.responses[0].partition_responses[0].error_code == 0
        for offset in range(1, RECORDS + 1):
            deleted, listed = pipeline(client, delete_before(offset), log_start())
            assert deleted.topics[0].partitions[0].low_watermark == offset
            assert listed.topics[0].partitions[0].offset == offset
