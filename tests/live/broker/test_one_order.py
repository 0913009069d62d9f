"""Requests of one connection take effect in the order in which they came, tested with raw bytes on a socket.

Four pipelined IncrementalAlterConfigs once ended with a wrong value 15 times of 20 (Apache Kafka: 0 of 20).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import Record, encode_batch
from squall.broker.protocol.schema import delete_records as deleting
from squall.broker.protocol.schema import incremental_alter_configs as altering
from squall.broker.protocol.schema.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from squall.broker.protocol.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from squall.broker.protocol.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.brokers.broker_process import BrokerProcess

TOPIC, TIMES, PIPELINED, RECORDS = 2, 20, 4, 20
Sent = tuple[Any, int]
"""A request and its version."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path_factory.mktemp("one-order"))
    try:
        with made.connect() as client:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            created = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
            assert [t.error_code for t in created.topics] == [0]
        yield made
    finally:
        made.stop()


def alter(value: int) -> Sent:
    config = altering.AlterableConfig(name="retention.ms", config_operation=0, value=str(value))
    resource = altering.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
    request = altering.IncrementalAlterConfigsRequest(resources=[resource])
    return request, 1


def describe() -> Sent:
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=["retention.ms"])
    return DescribeConfigsRequest(resources=[resource]), 4


def log_start() -> Sent:
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-2)])
    return ListOffsetsRequest(replica_id=-1, topics=[topic]), 7


def delete_before(offset: int) -> Sent:
    part = deleting.DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = deleting.DeleteRecordsTopic(name="t", partitions=[part])
    return deleting.DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2


@pytest.mark.gate
def test_of_pipelined_changes_of_a_setting_the_last_one_stays_and_what_follows_sees_it(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        for n in range(TIMES):
            values = [1_000_000 + PIPELINED * n + i for i in range(PIPELINED)]
            *altered, described = client.pipeline(*map(alter, values), describe())
            assert [answer.responses[0].error_code for answer in altered] == [0] * PIPELINED
            [config] = described.results[0].configs
            assert config.value == str(values[-1])


def test_a_look_at_the_logs_start_behind_delete_records_sees_the_new_start(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        batch = encode_batch([Record(n, 1_000, None, b"v") for n in range(RECORDS)])
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
        produced = client.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
        assert produced.responses[0].partition_responses[0].error_code == 0
        for offset in range(1, RECORDS + 1):
            deleted, listed = client.pipeline(delete_before(offset), log_start())
            assert deleted.topics[0].partitions[0].low_watermark == offset
            assert listed.topics[0].partitions[0].offset == offset


def test_what_follows_a_large_request_takes_effect_behind_it(broker: BrokerProcess) -> None:
    configs = [CreatableTopicConfig(name="retention.ms", value="1" * 30_000) for _ in range(3)]
    large = CreatableTopic(name="large", num_partitions=1, replication_factor=1, configs=configs)
    small = CreatableTopic(name="large", num_partitions=1, replication_factor=1)
    requests = [CreateTopicsRequest(topics=[topic], timeout_ms=60_000) for topic in (large, small, small)]
    assert len(requests[0].encode(7)) > 32 << 10
    with broker.connect() as client:
        answers = client.pipeline(*[(request, 7) for request in requests])
    errors = [answer.topics[0].error_code for answer in answers]
    assert errors == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
