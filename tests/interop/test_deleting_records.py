"""DeleteRecords by foreign clients: the records are gone on every replica, so also at the next leader."""

from __future__ import annotations

import time
from typing import Any

import pytest

RECORDS = 20

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the clients themselves


def filled_topic(cluster: Any, topic: str) -> Any:
    """Create a topic with one partition on three brokers and `RECORDS` records, each in a batch of its own. Returns an
    admin client.
    """
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(20)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "acks": "all"})
    for n in range(RECORDS):
        producer.produce(topic, str(n).encode(), partition=0)
        assert producer.flush(20) == 0
    return admin


def readable(admin: Any, topic: str) -> int:
    """Return the partition's earliest offset."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    [answer] = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()}).values()
    return int(answer.result(20).offset)


def read(cluster: Any, topic: str) -> list[int]:
    """Return the records that a consumer reads from the beginning."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[int] = []
    while not found or found[-1] < RECORDS - 1:
        message = consumer.poll(20)
        assert message is not None, found
        assert message.error() is None, message.error()
        found.append(int(message.value()))
    consumer.close()
    return found


def leader_of(admin: Any, topic: str) -> int:
    return int(admin.list_topics(topic, 20).topics[topic].partitions[0].leader)


def test_confluent_kafka_deletes_records_and_they_stay_deleted(cluster: Any) -> None:
    from confluent_kafka import TopicPartition

    topic = "deleted-by-confluent"
    admin = filled_topic(cluster, topic)
    [answer] = admin.delete_records([TopicPartition(topic, 0, 7)]).values()
    assert answer.result(20).low_watermark == 7
    assert read(cluster, topic) == list(range(7, RECORDS))
    first = leader_of(admin, topic)
    cluster.kill(first)
    try:
        deadline = time.monotonic() + 20
        while leader_of(admin, topic) in (first, -1):
            assert time.monotonic() < deadline, "nobody else leads"
            admin.poll(0.1)
        assert readable(admin, topic) == 7
        assert read(cluster, topic) == list(range(7, RECORDS))
    finally:
        cluster.restart(first)
    [answer] = admin.delete_records([TopicPartition(topic, 0, -1)]).values()
    assert answer.result(20).low_watermark == RECORDS
    assert readable(admin, topic) == RECORDS


def test_confluent_kafka_is_refused_what_is_not_there(cluster: Any) -> None:
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    admin = filled_topic(cluster, "not-deleted")
    [answer] = admin.delete_records([TopicPartition("not-deleted", 0, RECORDS + 1)]).values()
    with pytest.raises(KafkaException) as refused:
        answer.result(20)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
    assert readable(admin, "not-deleted") == 0


def test_kafka_python_deletes_records(cluster: Any) -> None:
    from kafka import KafkaAdminClient, TopicPartition

    confluent = filled_topic(cluster, "deleted-by-kafka-python")
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        admin.delete_records({TopicPartition("deleted-by-kafka-python", 0): 5}, timeout_ms=20_000)
    finally:
        admin.close()
    assert readable(confluent, "deleted-by-kafka-python") == 5
    assert read(cluster, "deleted-by-kafka-python") == list(range(5, RECORDS))
