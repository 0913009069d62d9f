"""A topic that a group has read is deleted and created again: our broker and Apache Kafka behave alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.clusters import Kafka, MeasuredCluster, Squall
from squall.broker.protocol.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from squall.chaos.toolchain.kafka import kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from tests.interop.test_one_directory_two_brokers import ALONE
from tests.support.brokers.raw_client import RawClient
from tests.support.lacks import without

TOPIC, OTHER, GROUP, WITHIN_S = "inputs", "others", "readers", 60.0
KAFKA = pytest.mark.skipif(not kafka_is_here(), reason=without("Apache Kafka and a whole Java", FETCH))
SETTINGS = {**ALONE, "offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(params=[Squall, pytest.param(Kafka, marks=KAFKA)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MeasuredCluster]:
    made: MeasuredCluster = request.param(tmp_path, SETTINGS, (1,))
    made.start()
    try:
        yield made
    finally:
        made.kill(1)


def until(found: Any, wanted: Any) -> None:
    """Call `found` until it returns the wanted value."""
    deadline = time.monotonic() + WITHIN_S
    while (now := found()) != wanted:
        assert time.monotonic() < deadline, now
        time.sleep(0.05)


class Client:
    """A confluent-kafka client of one broker."""

    def __init__(self, cluster: MeasuredCluster) -> None:
        from confluent_kafka.admin import AdminClient

        self.at = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
        self.admin = AdminClient(self.at)
        self.port = cluster.ports[1]

    def make(self, name: str) -> None:
        from confluent_kafka.admin import NewTopic

        def made() -> bool:
            future = self.admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=20)[name]
            return future.exception() is None

        until(made, True)

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name], operation_timeout=20)[name].result(WITHIN_S)
        until(lambda: name in self.admin.list_topics(timeout=WITHIN_S).topics, False)

    def write(self, first: int, count: int) -> list[bytes]:
        from confluent_kafka import Producer

        producer = Producer({**self.at, "acks": "all"})
        values = [b"%d" % n for n in range(first, first + count)]
        for value in values:
            producer.produce(TOPIC, value, partition=0)
        assert producer.flush(WITHIN_S) == 0
        return values

    def read(self, wanted: list[bytes], protocol: str = "classic") -> None:
        """Run a group member, assert that it reads exactly these records, and let it commit."""
        from confluent_kafka import Consumer

        consumer = Consumer(
            {**self.at, "group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False,
             "group.protocol": protocol}
        )  # fmt: skip
        consumer.subscribe([TOPIC])
        found: list[bytes] = []
        deadline = time.monotonic() + WITHIN_S
        while len(found) < len(wanted):
            assert time.monotonic() < deadline, found
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value())
        assert found == wanted
        consumer.commit(asynchronous=False)
        consumer.close()

    def committed(self, version: int, topic: str = TOPIC) -> int:
        """Return the committed offset in OffsetFetch of this version; -1 if there is none."""
        with RawClient(self.port) as client:
            if version < 8:
                named = [OffsetFetchRequestTopic(topic, [0])]
                answer = client.ask(OffsetFetchRequest(group_id=GROUP, topics=named), version)
                parts = answer.topics[0].partitions
            else:
                asked = OffsetFetchRequestGroup(GROUP, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])])
                answer = client.ask(OffsetFetchRequest(groups=[asked]), version)
                parts = answer.groups[0].topics[0].partitions
        assert parts[0].error_code == 0
        offset: int = parts[0].committed_offset
        return offset


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_all_of_a_topic_that_was_made_again(cluster: MeasuredCluster, protocol: str) -> None:
    """A group once skipped 10 of 30 records, because the deleted topic's offset was still committed."""
    client = Client(cluster)
    client.make(TOPIC)
    client.read(client.write(0, 20), protocol)
    assert [client.committed(version) for version in (1, 5, 7, 8, 9)] == [20] * 5
    client.delete(TOPIC)
    for version in (1, 5, 7, 8, 9):
        until(lambda version=version: client.committed(version), -1)
    client.make(TOPIC)
    assert [client.committed(version) for version in (1, 5, 7, 8, 9)] == [-1] * 5
    client.read(client.write(100, 30), protocol)
    assert client.committed(7) == 30


def test_an_offset_that_a_transaction_commits_after_its_topic_went_is_none(cluster: MeasuredCluster) -> None:
    """An offset in an open transaction is removed with its topic; the transaction's later commit does not restore it.
    """
    from confluent_kafka import Consumer, Producer, TopicPartition

    client = Client(cluster)
    client.make(TOPIC)
    client.make(OTHER)
    client.write(0, 20)
    consumer = Consumer({**client.at, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 5)], asynchronous=False)
    producer = Producer({**client.at, "transactional.id": "pipeline"})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    offsets = [TopicPartition(TOPIC, 0, 20), TopicPartition(OTHER, 0, 7)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WITHIN_S)
    client.delete(TOPIC)
    until(lambda: client.committed(7), -1)  # Kafka's coordinator hears of it later than Metadata
    client.make(TOPIC)
    producer.commit_transaction(WITHIN_S)
    consumer.close()
    until(lambda: client.committed(7, OTHER), 7)
    assert client.committed(7) == -1
