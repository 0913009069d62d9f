"""Requests that are well formed and ask for much: nobody else waits for them."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from broker.protocol.errors import ErrorCode
from broker.protocol.header import decode_response_header, encode_request
from broker.protocol.schema.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from broker.protocol.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.protocol.schema.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from broker.protocol.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from broker.protocol.schema.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from broker.protocol.schema.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from broker.protocol.schema.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.protocol.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.protocol.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.protocol.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from broker.protocol.schema.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.support.brokers.bombs import many_records
from tests.support.brokers.broker_process import BrokerProcess, ask, is_closed, receive_frame
from tests.support.brokers.bystander import Bystander

PATIENCE_S = 2.0
"""What a bystander may wait for an answer on a machine that has much to do. Patterns and look-ups once took the event
loop for longer, and so did lists that are longer than what is allowed now."""
LIMITS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path_factory.mktemp("costly-requests"), LIMITS)
    try:
        with made.connect() as client:
            create(client, "t")
        yield made
        assert made.process.poll() is None, f"the broker ended: {made.log.read_text()[-2000:]}"
    finally:
        made.stop()


def create(client: socket.socket, *names: str, partitions: int = 1) -> None:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    made: Any = ask(client, CreateTopicsRequest(topics=topics, timeout_ms=30_000), CreateTopicsResponse, 7)
    assert [topic.error_code for topic in made.topics] == [0] * len(names)


def begin(broker: BrokerProcess, name: str) -> None:
    """Make a transactional id known to the coordinator."""

    def is_known() -> bool:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        with broker.connect() as client:
            # The first one to ask makes the coordinator's topic.
            ask(client, FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), FindCoordinatorResponse, 4)
            answer: Any = ask(client, request, InitProducerIdResponse, 4)
        return bool(answer.error_code == ErrorCode.NONE)

    broker.wait_for(is_known)


def listed(broker: BrokerProcess, pattern: str) -> ListTransactionsResponse:
    with broker.connect() as client:
        client.settimeout(60)
        answer: Any = ask(
            client, ListTransactionsRequest(transactional_id_pattern=pattern), ListTransactionsResponse, 2
        )
    assert isinstance(answer, ListTransactionsResponse)
    return answer


def test_a_pattern_that_takes_others_for_ever_lists_transactions_and_stops_nobody(broker: BrokerProcess) -> None:
    """With Python's `re` the first pattern took 37 s."""
    rng = random.Random(1)
    long = ["".join(rng.choices("ab", k=24_000)) for _ in range(6)]
    begin(broker, "a" * 30 + "!")
    begin(broker, "a" * 30)
    for name in long:
        begin(broker, name)
    with Bystander(broker) as bystander:
        answer = listed(broker, "(a+)+$")
        assert [state.transactional_id for state in answer.transaction_states] == ["a" * 30]
        answer = listed(broker, "(a|b)*a(a|b){60}")
        names = {state.transactional_id for state in answer.transaction_states}
        assert names == {name for name in long if name[-61] == "a"}
        assert 0 < len(names) < len(long)
        assert listed(broker, "(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert listed(broker, "a" * 1001).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert bystander.answers > 10
    assert bystander.slowest_s < PATIENCE_S


def batch_that_claims_to_be_late(newest_ms: int) -> bytes:
    """Of 4,600 records in less than 32 KiB, none of them as late as the header says."""
    batch = many_records(4_600, newest_ms, codec=0)
    assert len(batch) < 32 << 10
    return batch


def test_a_look_up_through_hundreds_of_batches_stops_nobody(broker: BrokerProcess) -> None:
    """500 batches of 32 KiB are 16 MB, and took the event loop for seconds."""
    newest = int(time.time() * 1000) + 60_000
    with broker.connect() as client:
        create(client, "long")
        part = PartitionProduceData(index=0, records=batch_that_claims_to_be_late(newest))
        data = TopicProduceData(name="long", partition_data=[part])
        for _ in range(500):
            done: Any = ask(client, ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), ProduceResponse, 9)
            assert done.responses[0].partition_responses[0].error_code == 0
        client.settimeout(60)
        with Bystander(broker) as bystander:
            assert look_up(client, "long", [0], newest) == [(0, 0, -1)]
    assert bystander.answers > 20
    assert bystander.slowest_s < PATIENCE_S


def test_a_partition_that_is_named_thousands_of_times_is_looked_up_not_once(broker: BrokerProcess) -> None:
    """2,000 times took the event loop for 4.8 s."""
    newest = int(time.time() * 1000) + 60_000
    with broker.connect() as client:
        create(client, "twice")
        data = TopicProduceData(
            name="twice",
            partition_data=[PartitionProduceData(index=0, records=batch_that_claims_to_be_late(newest))],
        )
        ask(client, ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), ProduceResponse, 9)
        with Bystander(broker) as bystander:
            assert look_up(client, "twice", [0] * 2000, newest) == [(0, ErrorCode.INVALID_REQUEST, -1)]
            assert look_up(client, "twice", [0], newest) == [(0, 0, -1)]
    assert bystander.slowest_s < PATIENCE_S


def look_up(client: socket.socket, topic: str, indexes: list[int], timestamp: int) -> list[tuple[int, int, int]]:
    """Index, error and offset of each row of the answer."""
    parts = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=parts)])
    answer: Any = ask(client, request, ListOffsetsResponse, 7)
    [told] = answer.topics
    return [(part.partition_index, part.error_code, part.offset) for part in told.partitions]


NAMES = [f"{number}" for number in range(40_000)]
MANY: tuple[tuple[Any, type[Any], int], ...] = (
    (DescribeGroupsRequest(groups=NAMES), DescribeGroupsResponse, 5),
    (DescribeTransactionsRequest(transactional_ids=NAMES), DescribeTransactionsResponse, 0),
    (ConsumerGroupDescribeRequest(group_ids=NAMES), ConsumerGroupDescribeResponse, 1),
    (DeleteGroupsRequest(groups_names=NAMES), DeleteGroupsResponse, 2),
    (
        DescribeProducersRequest(topics=[TopicRequest(name="nobody", partition_indexes=list(range(40_000)))]),
        DescribeProducersResponse,
        0,
    ),
)


@pytest.mark.parametrize(("request_", "response", "version"), MANY, ids=[type(row[0]).__name__ for row in MANY])
def test_a_request_that_lists_tens_of_thousands_is_answered_and_stops_nobody(
    broker: BrokerProcess, request_: Any, response: type[Any], version: int
) -> None:
    """Each took the event loop for half a second, and ten times as many took it for ten times as long."""
    answer = ask_beside(broker, request_, response, version)
    [told] = [value for name in answer.__match_args__ if isinstance(value := getattr(answer, name), list)]
    assert len(told[0].partitions if len(told) == 1 else told) == len(NAMES)


def ask_beside(broker: BrokerProcess, request: Any, response: type[Any], version: int) -> Any:
    """The answer. A bystander asks meanwhile, while this process only waits: what counts is the work of the broker."""
    frame = encode_request(request.API_KEY, version, 7, "test", request.encode(version))
    with broker.connect() as client:
        client.settimeout(60)
        with Bystander(broker) as bystander:
            client.sendall(frame)
            received = memoryview(receive_frame(client))
    assert bystander.slowest_s < PATIENCE_S
    correlation_id, at = decode_response_header(received, request.API_KEY, version)
    assert correlation_id == 7
    return response.decode(received, at, version)[0]


def test_few_bytes_do_not_ask_for_millions_of_settings(broker: BrokerProcess) -> None:
    """Each of 12 bytes gets 250 settings: together they took the event loop for minutes, and gigabytes."""
    resources = [DescribeConfigsResource(resource_type=4, resource_name="1") for _ in range(40_000)]
    answer = ask_beside(broker, DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, 4)
    told = [result for result in answer.results if not result.error_code]
    assert 50_000 <= sum(len(result.configs) for result in told) < 51_000
    assert {result.error_code for result in answer.results[len(told) :]} == {ErrorCode.INVALID_REQUEST}


def test_a_request_that_alters_one_logger_many_times_stops_nobody(broker: BrokerProcess) -> None:
    """Each was compared with all others. A name of many digits ended its connection, or that of two nodes."""
    changes = [AlterableConfig(name="root", config_operation=0, value="INFO")]
    names = ["1"] * 24_000 + ["9" * 5_000]
    resources = [AlterConfigsResource(resource_type=8, resource_name=name, configs=changes) for name in names]
    resources.append(AlterConfigsResource(resource_type=4, resource_name="9" * 5_000))
    request = IncrementalAlterConfigsRequest(resources=resources)
    answer = ask_beside(broker, request, IncrementalAlterConfigsResponse, 1)
    assert {each.error_code for each in answer.responses} == {ErrorCode.INVALID_REQUEST}


@pytest.mark.parametrize(
    ("pattern", "subscriptions", "error"),
    [("a" * 32_000, 120, ErrorCode.POLICY_VIOLATION), ("(?i)" + "[\1-\uffff]" * 199, 480, ErrorCode.NONE)],
    ids=["long", "costly to compile"],
)
def test_patterns_for_clients_metrics_stop_nobody(
    broker: BrokerProcess, pattern: str, subscriptions: int, error: ErrorCode
) -> None:
    """To compile 120 long ones took 2 s, and 480 short ones of a kind take four minutes."""
    configs = [AlterableConfig(name="match", value=f"client_id={pattern}")]
    resources = [
        AlterConfigsResource(resource_type=16, resource_name=f"m{nth}", configs=configs) for nth in range(subscriptions)
    ]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
    answer = ask_beside(broker, request, IncrementalAlterConfigsResponse, 1)
    assert {each.error_code for each in answer.responses} == {error}


def test_a_request_that_lists_more_ends_its_connection_only(broker: BrokerProcess) -> None:
    names = [f"{number}" for number in range(50_001)]
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=n) for n in range(20_001)])
    parts = [FetchPartition(partition=n) for n in range(40_000)]
    sent: list[tuple[Any, int]] = [
        (DescribeGroupsRequest(groups=names), 5),
        (DescribeGroupsRequest(groups=["a" * 30_000] * 150), 5),
        (ProduceRequest(acks=1, timeout_ms=5000, topic_data=[topic]), 9),
        (FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="t", partitions=parts)]), 12),
    ]
    for request, version in sent:
        frame = encode_request(request.API_KEY, version, 7, "test", request.encode(version))
        with broker.connect() as client, Bystander(broker) as bystander:
            client.sendall(frame)
            assert is_closed(client, 30), type(request)
        assert bystander.slowest_s < PATIENCE_S
    broker.assert_serves()


def test_what_follows_a_large_request_takes_effect_behind_it(broker: BrokerProcess) -> None:
    configs = [CreatableTopicConfig(name="retention.ms", value="1" * 30_000) for _ in range(3)]
    large = CreatableTopic(name="large", num_partitions=1, replication_factor=1, configs=configs)
    small = CreatableTopic(name="large", num_partitions=1, replication_factor=1)
    frames = [
        encode_request(19, 7, number, "test", CreateTopicsRequest(topics=[topic], timeout_ms=10_000).encode(7))
        for number, topic in enumerate((large, small, small))
    ]
    assert len(frames[0]) > 32 << 10
    with broker.connect() as client:
        client.sendall(b"".join(frames))
        errors = []
        for number in range(len(frames)):
            frame = memoryview(receive_frame(client))
            correlation_id, at = decode_response_header(frame, 19, 7)
            assert correlation_id == number
            errors += [topic.error_code for topic in CreateTopicsResponse.decode(frame, at, 7)[0].topics]
    assert errors == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
