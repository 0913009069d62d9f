"""Requests that are well formed and ask for much: nobody else waits for them."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from broker.protocol.errors import ErrorCode
from broker.protocol.schema.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from broker.protocol.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
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
from tests.support.brokers.broker_process import BrokerProcess, ask
from tests.support.brokers.bystander import Bystander

pytestmark = pytest.mark.timeout(120)
PATIENCE_S = 0.5
"""What a bystander may wait for an answer on a machine that has much to do. Each request here once took the event loop
for longer."""
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
