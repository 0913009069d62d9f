"""confluent-kafka, aiokafka and kafka-python on our brokers while a leader is killed: no record is lost or doubled.

If broker and client share a codec, its errors cancel out; these clients share no code with us. Each client library has
a producer for each codec, and all write to the same partitions: so one failover is tested with every codec.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.patience import scaled

PARTITIONS = 3
RECORDS = 1500
"""Records of all producers of a client library together."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_S = scaled(60.0)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the clients themselves


def codec_of(n: int) -> str:
    """Return the compression codec of the n-th record's producer."""
    return CODECS[n % len(CODECS)]


def payload(n: int) -> bytes:
    return f"{codec_of(n)}-{n}-".encode() + b"x" * (n % 700)


def check(acked: list[bytes], read: list[bytes]) -> None:
    counts = Counter(read)
    assert not [v[:20] for v in acked if not counts[v]], "acknowledged records were lost"
    assert not {v[:20]: c for v, c in counts.items() if c > 1}, "records were doubled"
    assert len(acked) == RECORDS


class Killer:
    """Kills the leader of a partition once, during the load, and restarts it at the end."""

    def __init__(self, cluster: Any, leader: Callable[[], int]) -> None:
        self._cluster, self._leader = cluster, leader
        self.killed = 0

    def at(self, n: int) -> None:
        if n == RECORDS // 3 and not self.killed:
            self.killed = self._leader()
            self._cluster.kill(self.killed)

    def restore(self) -> None:
        assert self.killed, "no leader was killed: the test has shown nothing"
        self._cluster.restart(self.killed)


# ------------------------------------------------------------------------------------------------- confluent-kafka


@pytest.mark.gate
def test_confluent_kafka_loses_and_doubles_nothing_while_a_leader_is_killed(cluster: Any) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = "confluent"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(DEADLINE_S)
    killer = Killer(cluster, lambda: admin.list_topics(topic, 20).topics[topic].partitions[0].leader)
    common = {
        "bootstrap.servers": cluster.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 5,
        "message.timeout.ms": int(DEADLINE_S * 1000),
    }
    producers = {codec: Producer({**common, "compression.type": codec}) for codec in CODECS}
    acked: list[bytes] = []
    failed: list[Any] = []

    def done(error: Any, message: Any) -> None:
        failed.append(error) if error else acked.append(message.value())

    for n in range(RECORDS):
        producer = producers[codec_of(n)]
        producer.produce(topic, payload(n), partition=n % PARTITIONS, on_delivery=done)
        producer.poll(0.001)
        killer.at(n)
    assert [producer.flush(DEADLINE_S) for producer in producers.values()] == [0] * len(CODECS)
    assert not failed
    killer.restore()

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    ends = sum(consumer.get_watermark_offsets(TopicPartition(topic, p), 20)[1] for p in range(PARTITIONS))
    read: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(read) < ends and time.monotonic() < deadline:
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            read.append(message.value())
    consumer.close()
    check(acked, read)


# --------------------------------------------------------------------------------------------------------- aiokafka


def test_aiokafka_loses_and_doubles_nothing_while_a_leader_is_killed(cluster: Any) -> None:
    asyncio.run(_aiokafka(cluster))


async def _aiokafka(cluster: Any) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    topic = "aiokafka"
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, PARTITIONS, 3)])
    leader = await _leader(admin, topic)
    await admin.close()
    killer = Killer(cluster, lambda: int(leader))
    producers = {
        codec: AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap,
            enable_idempotence=True,
            acks="all",
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
            request_timeout_ms=20_000,
        )
        for codec in CODECS
    }
    for producer in producers.values():
        await producer.start()
    acked: list[bytes] = []
    waiting = []
    for n in range(RECORDS):
        value = payload(n)
        waiting.append((value, await producers[codec_of(n)].send(topic, value, partition=n % PARTITIONS)))
        killer.at(n)
        if n % 20 == 0:
            await asyncio.sleep(0.002)
    for value, future in waiting:
        await asyncio.wait_for(future, DEADLINE_S)
        acked.append(value)
    for producer in producers.values():
        await producer.stop()
    killer.restore()

    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    consumer.assign(places)
    ends = sum((await consumer.end_offsets(places)).values())
    read: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(read) < ends and time.monotonic() < deadline:
        for messages in (await consumer.getmany(timeout_ms=500)).values():
            read += [message.value for message in messages]
    await consumer.stop()
    check(acked, read)


async def _leader(admin: Any, topic: str) -> int:
    """Return the leader of the first partition. A broker may learn of a new topic later than the one that created it.
    """
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        partitions = (await admin.describe_topics([topic]))[0]["partitions"]
        if partitions and partitions[0]["leader"] >= 0:
            return int(partitions[0]["leader"])
        await asyncio.sleep(0.05)
    raise AssertionError(f"{topic} has no leader")


# ----------------------------------------------------------------------------------------------------- kafka-python


def test_kafka_python_loses_and_doubles_nothing_while_a_leader_is_killed(cluster: Any) -> None:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic

    topic = "kafka-python"
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])
    killer = Killer(cluster, lambda: int(admin.describe_topics([topic])[0]["partitions"][0]["leader_id"]))
    producers = {
        codec: KafkaProducer(
            bootstrap_servers=cluster.bootstrap,
            enable_idempotence=True,
            acks="all",
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
            request_timeout_ms=10_000,
            delivery_timeout_ms=int(DEADLINE_S * 1000),
        )
        for codec in CODECS
    }
    waiting = []
    for n in range(RECORDS):
        value = payload(n)
        waiting.append((value, producers[codec_of(n)].send(topic, value, partition=n % PARTITIONS)))
        killer.at(n)
    for producer in producers.values():
        producer.flush(DEADLINE_S)
    acked = []
    for value, future in waiting:
        future.get(DEADLINE_S)
        acked.append(value)
    for producer in producers.values():
        producer.close()
    admin.close()
    killer.restore()

    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    consumer.assign(places)
    ends = sum(consumer.end_offsets(places).values())
    read: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(read) < ends and time.monotonic() < deadline:
        for messages in consumer.poll(timeout_ms=500).values():
            read += [message.value for message in messages]
    consumer.close()
    check(acked, read)
