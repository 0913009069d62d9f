"""Starts one node of ours and one of Apache Kafka's with the same settings, and creates the topics that all rows share.
"""

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
"""Settings of both in addition to those of `bench.clusters`: one node only, no delay of a classic group's first
rebalance, and retention of the old records that rows write.
"""

AT_ONCE = {"group.consumer.assignment.interval.ms": "0", "group.consumer.assignor.offload.enable": "false"}
"""Settings of Apache Kafka alone. Since 4.3 it computes assignments at most once a second and in another thread
(KIP-1263), and every row would have to wait. Ours computes them in the heartbeat.
"""


@contextmanager
def both(folder: Path) -> Iterator[tuple[Broker, Broker]]:
    """Start both brokers, and yield (ours, Kafka's) once both serve. Raises PreconditionError if Apache Kafka cannot be
    had.
    """
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
    """Create the topic "shared", with five records in its first partition, and the topic "many"."""
    for name, partitions in (("shared", 2), ("many", MANY)):
        made = make_topic(name, partitions)
        broker.shared[name] = answer = broker.ask(made.request, made.version)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        broker.await_topic(name)
    part = PartitionProduceData(0, Batch(tuple(b"%d" % number for number in range(5))))
    request = ProduceRequest(None, -1, 30_000, [TopicProduceData("shared", partition_data=[part])])
    assert broker.ask(resolved(request, {}), 9).responses[0].partition_responses[0].error_code == ErrorCode.NONE
