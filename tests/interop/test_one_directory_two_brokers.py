"""Apache Kafka, started on our data directory, completes our open transactions, and our broker completes Kafka's.

A Java producer uses transaction protocol V2, which librdkafka does not support.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.clusters import Kafka, MeasuredCluster, Squall
from squall.broker.coordinators.partitions import partition_of
from squall.broker.protocol.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from squall.chaos.toolchain.kafka import apache_kafka, kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from tests.support.brokers.raw_client import RawClient
from tests.support.lacks import without

pytestmark = pytest.mark.skipif(not kafka_is_here(), reason=without("Apache Kafka and a whole Java", FETCH))

TOPIC, WITHIN_S, COORDINATORS = "swapped", 60.0, 3
ALONE = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": str(COORDINATORS),
    "offsets.topic.replication.factor": "1",
    "metadata.log.max.snapshot.interval.ms": "2000",
    "squall.bootstrap.features": "metadata.version=30",
}
"""Settings of a single broker at metadata version 4.3, Kafka's default. Ours is 4.2."""
LEAVE = """
import os, sys
from confluent_kafka import Producer
bootstrap, topic, transactional_id = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0,
                     "transaction.timeout.ms": 600_000})
producer.init_transactions(60)
producer.begin_transaction()
producer.produce(topic, b"left open by " + transactional_id.encode(), partition=0)
producer.flush(60)
os._exit(0)
"""
"""A program with a producer that exits inside a transaction, without closing it."""


class Swapped:
    """A data directory, and the broker that uses it now."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.kafka = Squall(folder, ALONE, (1,)), Kafka(folder, ALONE, (1,))
        self.kafka.ports, self.kafka.internal = self.ours.ports, self.ours.internal
        self.now: MeasuredCluster = self.ours
        self.ours.start()

    def kill_and_start(self, other: MeasuredCluster) -> None:
        """Kill the broker by SIGKILL, and start the other one on its directory."""
        self.now.kill(1)
        self.now = other
        other.configure(1)
        other.launch(1)

    def log(self) -> bytes:
        """Return the bytes of the topic's log segment."""
        return (self.ours.folder / "n1" / f"{TOPIC}-0" / f"{0:020}.log").read_bytes()

    def served(self) -> bytes:
        """Return the records that the present broker answers to a Fetch from the start."""
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=TOPIC, partitions=[partition])]
        )
        with RawClient(self.now.ports[1], WITHIN_S) as client:
            answer = client.ask(request, 4)
        [found] = answer.responses[0].partitions
        assert found.error_code == 0
        return bytes(found.records)

    def newest_snapshot(self) -> str:
        """Return the name of the metadata log's newest snapshot, "" if there is none."""
        return max(
            (each.name for each in (self.ours.folder / "n1").glob("__cluster_metadata-0/*.checkpoint")), default=""
        )

    def wait_for_a_snapshot_after(self, name: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while self.newest_snapshot() <= name:
            assert time.monotonic() < deadline, f"no snapshot within {WITHIN_S} s"
            time.sleep(0.1)

    def make_topic(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.now.bootstrap, "log_level": 0})
        deadline = time.monotonic() + WITHIN_S
        while True:
            try:
                admin.create_topics([NewTopic(TOPIC, 1, 1)], request_timeout=3)[TOPIC].result(WITHIN_S)
                return
            except KafkaException as failed:
                if failed.args[0].name() == "TOPIC_ALREADY_EXISTS":
                    return  # by a call that was given up before its answer came
                assert time.monotonic() < deadline, "no topic within the time"
                time.sleep(0.05)

    def leave_open(self, transactional_id: str) -> None:
        subprocess.run(
            [sys.executable, "-c", LEAVE, self.now.bootstrap, TOPIC, transactional_id], check=True, timeout=90
        )

    def producer(self, transactional_id: str) -> Any:
        """Return a producer that has initialized this transactional id."""
        from confluent_kafka import Producer

        made = Producer(
            {"bootstrap.servers": self.now.bootstrap, "transactional.id": transactional_id, "linger.ms": 0,
             "log_level": 0}
        )  # fmt: skip
        made.init_transactions(WITHIN_S)
        return made

    def transact(self, transactional_id: str, value: bytes) -> None:
        producer = self.producer(transactional_id)
        producer.begin_transaction()
        producer.produce(TOPIC, value, partition=0)
        producer.commit_transaction(WITHIN_S)

    def read(self, isolation: str) -> list[bytes]:
        """Return what a consumer at this isolation level reads from the start."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": self.now.bootstrap, "group.id": "unused", "isolation.level": isolation,
             "enable.auto.commit": False, "enable.partition.eof": True}
        )  # fmt: skip
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        found: list[bytes] = []
        while (message := consumer.poll(WITHIN_S)) is not None and message.error() is None:
            found.append(message.value())
        consumer.close()
        assert message is not None, f"no end within {WITHIN_S} s, read so far: {found}"
        assert message.error().name() == "_PARTITION_EOF", message.error()
        return found


@pytest.fixture
def swapped(tmp_path: Path) -> Iterator[Swapped]:
    made = Swapped(tmp_path)
    try:
        yield made
    finally:
        made.now.kill(1)


def statuses(folder: Path, transactional_id: str) -> list[tuple[int, int]]:
    """(status, producer epoch) of each record of this id in the coordinator's log, as Kafka's own tool reads it."""
    name = f"__transaction_state-{partition_of(transactional_id, COORDINATORS)}"
    arguments = ["--transaction-log-decoder", "--files", str(folder / "n1" / name / f"{0:020}.log")]
    said = kafka_tool("org.apache.kafka.tools.DumpLogSegments", *arguments)
    found = []
    for line in said.splitlines():
        if f'"transactionalId":"{transactional_id}"' in line:
            state = json.loads(line.partition(" payload: ")[2])["data"]
            found.append((state["transactionStatus"], state["producerEpoch"]))
    return found


def kafka_tool(main: str, *arguments: str) -> str:
    command = apache_kafka(lambda line: None).command(main, arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT = 0, 1, 2, 4
"""The numbers of these states in `__transaction_state`."""


def test_kafka_and_ours_finish_each_others_open_transactions_on_one_directory(swapped: Swapped, tmp_path: Path) -> None:
    swapped.make_topic()
    swapped.transact("a", b"1 of a")
    swapped.leave_open("b")
    assert swapped.read("read_committed") == [b"1 of a"]
    ours = swapped.log()
    assert swapped.served() == ours

    swapped.kill_and_start(swapped.kafka)
    assert statuses(tmp_path, "a") == [(EMPTY, 0), (ONGOING, 0), (PREPARE_COMMIT, 0), (COMPLETE_COMMIT, 0)]
    assert statuses(tmp_path, "b") == [(EMPTY, 0), (ONGOING, 0)]
    swapped.transact("c", b"1 of c")
    assert swapped.read("read_committed") == [b"1 of a"], "the transaction of b is open still"
    swapped.transact("b", b"1 of b")
    assert swapped.read("read_committed") == [b"1 of a", b"1 of c", b"1 of b"]
    swapped.leave_open("d")
    theirs = swapped.log()
    assert theirs.startswith(ours), "byte for byte what ours wrote"
    assert swapped.served() == theirs

    swapped.kill_and_start(swapped.ours)
    swapped.transact("c", b"2 of c")
    assert swapped.read("read_committed") == [b"1 of a", b"1 of c", b"1 of b"], "the transaction of d is open still"
    swapped.transact("d", b"1 of d")
    assert swapped.read("read_committed") == [b"1 of a", b"1 of c", b"1 of b", b"2 of c", b"1 of d"]
    left = [b"left open by b", b"left open by d"]
    everything = [b"1 of a", left[0], b"1 of c", b"1 of b", left[1], b"2 of c", b"1 of d"]
    assert swapped.read("read_uncommitted") == everything
    assert swapped.log().startswith(theirs), "byte for byte what Kafka wrote"
    assert swapped.served() == swapped.log()


def test_what_ours_does_not_serve_outlives_our_snapshots(swapped: Swapped) -> None:
    swapped.make_topic()
    swapped.kill_and_start(swapped.kafka)
    swapped.producer("up").flush()
    alice = ["--bootstrap-server", swapped.now.bootstrap, "--entity-type", "users", "--entity-name", "alice"]
    for setting in ("producer_byte_rate=1024", "SCRAM-SHA-256=[iterations=4096,password=secret]"):
        kafka_tool("kafka.admin.ConfigCommand", *alice, "--alter", "--add-config", setting)
    told = kafka_tool("kafka.admin.ConfigCommand", *alice, "--describe")
    assert "producer_byte_rate=1024" in told and "SCRAM-SHA-256=iterations=4096" in told

    before = swapped.newest_snapshot()
    swapped.kill_and_start(swapped.ours)
    swapped.wait_for_a_snapshot_after(before)
    swapped.kill_and_start(swapped.kafka)
    swapped.producer("up").flush()
    assert kafka_tool("kafka.admin.ConfigCommand", *alice, "--describe") == told


def test_a_java_producer_speaks_the_second_generation_with_ours(swapped: Swapped, tmp_path: Path) -> None:
    swapped.make_topic()
    kafka_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", TOPIC, "--num-records", "500", "--record-size", "20", "--throughput", "1000"),
        *("--transactional-id", "java", "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={swapped.now.bootstrap}"),
    )
    assert len(swapped.read("read_committed")) == 500
    done = [epoch for status, epoch in statuses(tmp_path, "java") if status == COMPLETE_COMMIT]
    assert len(done) >= 3
    assert done == sorted(set(done)), "each transaction has an epoch of its own"
