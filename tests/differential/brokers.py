"""One node of ours and one of Apache Kafka's, with the same settings, and what rows share on both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.clusters import Kafka, Squall
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.differential.bases import MANY, make_topic
from tests.differential.player import Broker
from tests.differential.steps import Batch, resolved

SETTINGS = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
}
"""Beside those of `bench.clusters`: one node, whose classic groups do not wait in their first rebalance, and which
keeps records as old as those of rows."""

AT_ONCE = {"group.consumer.assignment.interval.ms": "0", "group.consumer.assignor.offload.enable": "false"}
"""Of Apache Kafka, which since 4.3 assigns at most once a second, and in another thread (KIP-1263): a row would have to
wait for it. Ours assigns in the heartbeat."""


@contextmanager
def both(folder: Path) -> Iterator[tuple[Broker, Broker]]:
    """Ours and Kafka's, ready. Raise PreconditionError if Apache Kafka cannot be had."""
    clusters = [Squall(folder / "squall", SETTINGS, (1,)), Kafka(folder / "kafka", {**SETTINGS, **AT_ONCE}, (1,))]
    try:
        for cluster in clusters:
            cluster.folder.mkdir(parents=True)
            cluster.start()
        ours, theirs = (Broker(cluster.name, cluster.ports[1]) for cluster in clusters)
        for broker in (ours, theirs):
            broker.get_ready()
            make_shared(broker)
        yield ours, theirs
    finally:
        for cluster in clusters:
            cluster.stop()


def make_shared(broker: Broker) -> None:
    """Make the topics "shared", with five records in its first partition, and "many"."""
    for name, partitions in (("shared", 2), ("many", MANY)):
        made = make_topic(name, partitions)
        broker.shared[name] = answer = broker.ask(made.request, made.version)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        broker.await_topic(name)
    part = PartitionProduceData(0, Batch(tuple(b"%d" % number for number in range(5))))
    request = ProduceRequest(None, -1, 30_000, [TopicProduceData("shared", partition_data=[part])])
    assert broker.ask(resolved(request, {}), 9).responses[0].partition_responses[0].error_code == ErrorCode.NONE
