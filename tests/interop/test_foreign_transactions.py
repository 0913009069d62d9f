"""Transactions of confluent-kafka, kafka-python and aiokafka on our brokers: committed ones are visible, aborted ones
not.

All three use transaction protocol V1, also on a cluster that supports V2.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.patience import scaled

PARTITIONS = 3
DEADLINE_S = scaled(60.0)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the clients themselves


def make_topic(cluster: Any, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(20)


def read_all(cluster: Any, topic: str, isolation: str, count: int) -> list[bytes]:
    """Return what a consumer at this isolation level reads from the start, once it has `count` records and no more
    come.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "isolation.level": isolation,
         "enable.auto.commit": False}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    found: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    quiet_since = time.monotonic()
    while time.monotonic() < deadline and (len(found) < count or time.monotonic() - quiet_since < 1.5):
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message.value())
            quiet_since = time.monotonic()
    consumer.close()
    return sorted(found)


def check(cluster: Any, topic: str, committed: list[bytes], aborted: list[bytes]) -> None:
    assert read_all(cluster, topic, "read_committed", len(committed)) == sorted(committed)
    assert read_all(cluster, topic, "read_uncommitted", len(committed + aborted)) == sorted(committed + aborted)


def values(n: int) -> list[bytes]:
    return [b"txn-%d-%d" % (n, index) for index in range(PARTITIONS)]


def test_confluent_kafka_commits_and_aborts(cluster: Any) -> None:
    from confluent_kafka import Producer

    topic = "txn-confluent"
    make_topic(cluster, topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "confluent"})
    producer.init_transactions(DEADLINE_S)
    committed: list[bytes] = []
    aborted: list[bytes] = []
    for n in range(20):
        producer.begin_transaction()
        for index, value in enumerate(values(n)):
            producer.produce(topic, value, partition=index)
        if n % 3 == 2:
            producer.flush(DEADLINE_S)
            producer.abort_transaction(DEADLINE_S)
            aborted += values(n)
        else:
            producer.commit_transaction(DEADLINE_S)
            committed += values(n)
    check(cluster, topic, committed, aborted)


def test_kafka_python_commits_and_aborts(cluster: Any) -> None:
    from kafka import KafkaProducer

    topic = "txn-kafka-python"
    make_topic(cluster, topic)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="kafka-python")
    committed: list[bytes] = []
    aborted: list[bytes] = []
    try:
        producer.init_transactions()
        for n in range(10):
            producer.begin_transaction()
            sent = [producer.send(topic, value, partition=index) for index, value in enumerate(values(n))]
            if n % 3 == 2:
                for future in sent:
                    future.get(DEADLINE_S)
                producer.abort_transaction()
                aborted += values(n)
            else:
                producer.commit_transaction()
                committed += values(n)
    finally:
        producer.close()
    check(cluster, topic, committed, aborted)


async def transactions_of_aiokafka(cluster: Any, topic: str) -> tuple[list[bytes], list[bytes]]:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id="aiokafka")
    committed: list[bytes] = []
    aborted: list[bytes] = []
    await producer.start()
    try:
        for n in range(10):
            await producer.begin_transaction()
            for index, value in enumerate(values(n)):
                await producer.send_and_wait(topic, value, partition=index)
            if n % 3 == 2:
                await producer.abort_transaction()
                aborted += values(n)
            else:
                await producer.commit_transaction()
                committed += values(n)
    finally:
        await producer.stop()
    return committed, aborted


def test_aiokafka_commits_and_aborts(cluster: Any) -> None:
    import asyncio

    topic = "txn-aiokafka"
    make_topic(cluster, topic)
    committed, aborted = asyncio.run(transactions_of_aiokafka(cluster, topic))
    check(cluster, topic, committed, aborted)


def test_a_second_producer_of_the_same_id_fences_the_first_and_aborts_what_it_left_open(cluster: Any) -> None:
    from confluent_kafka import KafkaException, Producer

    topic = "txn-zombie"
    make_topic(cluster, topic)
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "zombie"}
    first, second = Producer(settings), Producer(settings)
    first.init_transactions(DEADLINE_S)
    first.begin_transaction()
    first.produce(topic, b"of the first", partition=0)
    first.flush(DEADLINE_S)
    second.init_transactions(DEADLINE_S)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(DEADLINE_S)
    assert raised.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"of the second", partition=0)
    second.commit_transaction(DEADLINE_S)
    check(cluster, topic, [b"of the second"], [b"of the first"])


def test_transactions_go_on_while_their_coordinator_is_killed(cluster: Any) -> None:
    from confluent_kafka import KafkaException, Producer
    from confluent_kafka.admin import AdminClient

    from squall.broker.coordinators.partitions import partition_of

    topic, log = "txn-failover", "__transaction_state"
    make_topic(cluster, topic)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "failover"})
    producer.init_transactions(DEADLINE_S)
    partitions = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(log, 20).topics[log].partitions
    coordinator = partitions[partition_of("failover", len(partitions))].leader
    committed: list[bytes] = []
    aborted: list[bytes] = []
    for n in range(12):
        if n == 6:
            cluster.kill(coordinator)
        producer.begin_transaction()
        for index, value in enumerate(values(n)):
            producer.produce(topic, value, partition=index)
        try:
            producer.commit_transaction(DEADLINE_S)
            committed += values(n)
        except KafkaException as error:
            assert error.args[0].txn_requires_abort(), error
            producer.abort_transaction(DEADLINE_S)
            aborted += values(n)
    cluster.restart(coordinator)
    assert len(committed) >= 10 * PARTITIONS
    found = read_all(cluster, topic, "read_committed", len(committed))
    assert found == sorted(committed)
