"""Requests to coordinators, and Fetches that wait, that once took a broker for seconds: others are served meanwhile."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from broker.protocol.errors import ErrorCode
from broker.protocol.header import encode_request
from broker.protocol.records import Record, encode_batch
from broker.protocol.schema.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from broker.protocol.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from broker.protocol.schema.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from broker.protocol.schema.end_txn import EndTxnRequest, EndTxnResponse
from broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from broker.protocol.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from broker.protocol.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.support.brokers.broker_process import BrokerProcess, ask
from tests.support.brokers.bystander import Bystander

PATIENCE_S = 0.7
"""What a bystander may wait on a busy machine."""
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
}
FEW, WIDE, FRESH = "few", "wide", "fresh"
LONG, WIDTH = 300, 600


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path_factory.mktemp("costly"), SETTINGS)
    try:
        yield made
        assert made.process.poll() is None, f"the broker ended: {made.log.read_text()[-2000:]}"
    finally:
        made.process.kill()  # to close a thousand logs in good order takes long, and shows nothing here
        made.stop()


def create(broker: BrokerProcess, **partitions: int) -> None:
    topics = [CreatableTopic(name=name, num_partitions=n, replication_factor=1) for name, n in partitions.items()]
    with broker.connect() as client:
        client.settimeout(60)
        answer: Any = ask(client, CreateTopicsRequest(topics=topics, timeout_ms=30_000), CreateTopicsResponse, 7)
    assert {topic.error_code for topic in answer.topics} == {0}
    made = broker.trace.parent / "data"
    broker.wait_for(lambda: all((made / f"{name}-{n - 1}").exists() for name, n in partitions.items()))


def produce(broker: BrokerProcess, topic: str) -> ErrorCode:
    batch = bytes(encode_batch([Record(0, int(time.time() * 1000), None, b"v")]))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    with broker.connect() as client:
        client.settimeout(60)
        answer: Any = ask(client, ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), ProduceResponse, 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def coordinator(broker: BrokerProcess, key: str, kind: int) -> None:
    """Have the coordinator's log made."""
    with broker.connect() as client:
        ask(client, FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), FindCoordinatorResponse, 4)


def test_parked_fetches_that_name_one_partition_often_hold_little_and_cost_a_record_little(
    broker: BrokerProcess,
) -> None:
    """51 MB of them kept 440 MB, and each record of anybody took more than a second from then on."""
    create(broker, **{FEW: 1})
    assert produce(broker, FEW) is ErrorCode.NONE
    parts = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1) for _ in range(30_000)]
    request = FetchRequest(
        max_wait_ms=2**31 - 1,
        min_bytes=2**30,
        max_bytes=2**31 - 1,
        session_epoch=-1,
        topics=[FetchTopic(topic=FEW, partitions=parts)],
    )
    frame = encode_request(request.API_KEY, 12, 7, "test", request.encode(12))
    before = broker.rss_mb()
    with broker.connect() as client:
        client.settimeout(60)
        for _ in range(30):
            client.sendall(frame)
        with Bystander(broker) as bystander:
            assert {produce(broker, FEW) for _ in range(5)} == {ErrorCode.NONE}
        assert broker.rss_mb() < before + 60
    assert bystander.slowest_s < PATIENCE_S


def test_a_costly_regular_expression_is_matched_while_others_are_served(broker: BrokerProcess) -> None:
    """It stopped the coordinator for 3.5 ms a topic."""
    rng = random.Random(1)
    names = ["".join(rng.choice("ab") for _ in range(249)) for _ in range(LONG)]
    create(broker, **dict.fromkeys(names, 1))
    coordinator(broker, "g", 0)
    member = str(uuid.UUID(int=5))
    answers: list[Any] = []

    def beat(epoch: int, **also: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, member_epoch=epoch, **also)
        with broker.connect() as client:
            client.settimeout(60)
            answers.append(ask(client, request, ConsumerGroupHeartbeatResponse, 1))
        return answers[-1]

    def has_joined() -> bool:
        regex = ".*a.{100}.{100}.*"
        joins = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [], "subscribed_topic_regex": regex}
        return beat(0, **joins, topic_partitions=[]).error_code == 0

    def is_assigned() -> bool:
        given = beat(answers[-1].member_epoch)
        assert given.error_code == 0
        return given.assignment is not None and len(given.assignment.topic_partitions) > LONG // 2

    with Bystander(broker) as bystander:
        broker.wait_for(has_joined)
        broker.wait_for(is_assigned)
    assert bystander.slowest_s < PATIENCE_S


def test_a_transaction_of_many_partitions_ends_while_others_are_served(broker: BrokerProcess) -> None:
    """The first marker of each log waits for the disk: 3,900 of them stopped three brokers for up to 8 s."""
    create(broker, **{WIDE: WIDTH})
    coordinator(broker, "t", 1)
    found: list[Any] = []

    def has_id() -> bool:
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        with broker.connect() as client:
            found.append(ask(client, request, InitProducerIdResponse, 4))
        return found[-1].error_code == 0

    broker.wait_for(has_id)
    who = {"producer_id": found[-1].producer_id, "producer_epoch": found[-1].producer_epoch}
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=who["producer_id"],
        v3_and_below_producer_epoch=who["producer_epoch"],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=WIDE, partitions=list(range(WIDTH)))],
    )

    def is_complete() -> bool:
        with broker.connect() as client:
            request = DescribeTransactionsRequest(transactional_ids=["t"])
            answer: Any = ask(client, request, DescribeTransactionsResponse, 0)
        return bool(answer.transaction_states[0].transaction_state == "CompleteCommit")

    with broker.connect() as client:
        client.settimeout(60)
        added: Any = ask(client, add, AddPartitionsToTxnResponse, 3)
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        with Bystander(broker) as bystander:
            ended: Any = ask(client, EndTxnRequest(transactional_id="t", committed=True, **who), EndTxnResponse, 3)
            assert ended.error_code == 0
            broker.wait_for(is_complete)
    assert bystander.slowest_s < PATIENCE_S


def test_the_first_batches_of_many_partitions_are_appended_while_others_are_served(broker: BrokerProcess) -> None:
    """Each first batch of a leader epoch waits for the disk: those of 3,600 stopped a broker until it was fenced."""
    create(broker, **{FRESH: WIDTH})
    batch = bytes(encode_batch([Record(0, int(time.time() * 1000), None, b"v")]))
    parts = [PartitionProduceData(index=index, records=batch) for index in range(WIDTH)]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=FRESH, partition_data=parts)])
    with broker.connect() as client:
        client.settimeout(60)
        with Bystander(broker) as bystander:
            answer: Any = ask(client, request, ProduceResponse, 9)
    [told] = answer.responses
    assert {part.error_code for part in told.partition_responses} == {ErrorCode.NONE}
    assert bystander.answers > 10
    assert bystander.slowest_s < PATIENCE_S
