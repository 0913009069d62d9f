"""Java's consumer and admin client with topic ids, and the tool `kafka-transactions`: on our brokers and on Kafka's."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.clusters import Kafka, MeasuredCluster, Squall
from squall.broker.protocol.records import Record, encode_batch
from squall.broker.protocol.schema.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from squall.broker.protocol.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from squall.broker.protocol.schema.metadata import MetadataRequest, MetadataRequestTopic
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from squall.chaos.runtimes.kafka.program import JVM_FLAGS
from squall.chaos.toolchain.kafka import kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from tests.interop.test_kafkas_own_tools import Tools
from tests.support.brokers.kafka_answers import ONE_NODE
from tests.support.brokers.raw_client import RawClient
from tests.support.lacks import without
from tests.support.patience import scaled

pytestmark = pytest.mark.skipif(not kafka_is_here(), reason=without("Apache Kafka and a whole Java", FETCH))

NODES = (1, 2)
LEADER, FOLLOWER = NODES
BY_TOPIC_ID = Path(__file__).parent / "ByTopicId.java"
RECORDS = 20
PRODUCER, EPOCH = 4711, 3
HOURS_AGO_MS = 2 * 3600 * 1000
BROKER = 4
"""The resource type of a broker's settings."""


class SmallKafka(Kafka):
    """An Apache Kafka cluster with one replica of each internal topic."""

    def command(self, node: int, config: Path) -> list[str]:
        return self._java("kafka.Kafka", str(config), flags=JVM_FLAGS)


@pytest.fixture(scope="module", params=[Squall, SmallKafka], ids=["squall", "kafka"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredCluster]:
    made: MeasuredCluster = request.param(tmp_path_factory.mktemp("two"), ONE_NODE, NODES)
    made.start()
    try:
        until(lambda: [len(ask(made, node, MetadataRequest(topics=[]), 12).brokers) for node in NODES] == [2, 2])
        yield made
    finally:
        made.stop()


def ask(cluster: MeasuredCluster, node: int, request: Any, version: int) -> Any:
    with RawClient(cluster.ports[node]) as client:
        return client.ask(request, version)


def until(holds: Any) -> None:
    """Wait until `holds` returns true. Errors while nodes do not answer yet are ignored."""
    deadline = time.monotonic() + scaled(100)
    while True:
        try:
            if holds():
                return
        except (OSError, AssertionError):
            pass
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.2)


def create(cluster: MeasuredCluster, name: str, *replicas: Sequence[int]) -> None:
    """Create a topic; each list has the replicas of one partition, and the first one leads."""
    placed = [CreatableReplicaAssignment(index, list(nodes)) for index, nodes in enumerate(replicas)]
    asked = CreateTopicsRequest([CreatableTopic(name, -1, -1, placed)], timeout_ms=60_000)
    [made] = ask(cluster, LEADER, asked, 7).topics
    assert made.error_code == 0, made
    topic = MetadataRequest([MetadataRequestTopic(name=name)])

    def is_led() -> bool:
        leaders = [[p.leader_id for p in ask(cluster, node, topic, 12).topics[0].partitions] for node in NODES]
        return leaders == [[nodes[0] for nodes in replicas]] * 2

    until(is_led)


def produce(cluster: MeasuredCluster, name: str, index: int, batch: bytes, transactional_id: str | None = None) -> None:
    given = [TopicProduceData(name, partition_data=[PartitionProduceData(index, batch)])]
    request = ProduceRequest(transactional_id, -1, 60_000, given)

    def is_taken() -> bool:
        [topic] = ask(cluster, LEADER, request, 11).responses
        return not topic.partition_responses[0].error_code

    until(is_taken)


def test_java_reads_by_pattern_and_describes_and_deletes_topics_by_id(cluster: MeasuredCluster) -> None:
    now_ms = int(time.time() * 1000)
    for name in ("read-1", "read-2"):
        create(cluster, name, [LEADER])
        produce(cluster, name, 0, encode_batch([Record(n, now_ms, None, b"v") for n in range(RECORDS // 2)]))
    found = Tools(cluster.bootstrap).run(str(BY_TOPIC_ID), str(RECORDS))
    assert [line for line in found if "ERROR" not in line] == [
        f"read by pattern: {RECORDS} of [read-1, read-2]",
        "members after their removal: 0",
        "described by id: [read-1, read-2]",
        "described by a wrong id: UnknownTopicIdException",
        "left: [read-1]",
    ]


def test_a_hanging_transaction_is_found_on_each_replica_and_aborted_by_an_admin(cluster: MeasuredCluster) -> None:
    """Without the admin it would never end, because its coordinator does not know it (KIP-664)."""
    create(cluster, "hanging", [LEADER, FOLLOWER])
    unverified = AlterableConfig("transaction.partition.verification.enable", 0, "false")
    altered = IncrementalAlterConfigsRequest([AlterConfigsResource(BROKER, str(LEADER), [unverified])])
    assert ask(cluster, LEADER, altered, 1).responses[0].error_code == 0
    record = Record(0, int(time.time() * 1000) - HOURS_AGO_MS, None, b"v")
    batch = encode_batch([record], producer_id=PRODUCER, producer_epoch=EPOCH, base_sequence=0, transactional=True)
    produce(cluster, "hanging", 0, batch, "nobody's")

    def tool(*arguments: str) -> list[list[str]]:
        main = "org.apache.kafka.tools.TransactionsCommand"
        return [line.split() for line in Tools(cluster.bootstrap).run(main, *arguments)]

    for node in NODES:
        [_, row] = tool("find-hanging", "--broker-id", str(node))
        assert row[:6] == ["hanging", "0", str(PRODUCER), str(EPOCH), "-1", "0"], node
    assert tool("abort", "--topic", "hanging", "--partition", "0", "--start-offset", "0") == []
    assert len(tool("find-hanging", "--broker-id", str(LEADER))) == 1, "only the heading"
    [_, producer] = tool("describe-producers", "--topic", "hanging", "--partition", "0")
    assert (producer[0], producer[-1]) == (str(PRODUCER), "None")
