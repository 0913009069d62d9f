"""DescribeConfigs and IncrementalAlterConfigs against Apache Kafka: the same requests to both, and the same answers.

Each test gets one node of each, and asks both over plain sockets, so that no client's reading comes between.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.clusters import Cluster, Kafka, Squall
from broker.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE
from broker.config import ConfigOp
from broker.protocol.errors import ErrorCode
from broker.protocol.schema import create_topics as create_wire
from broker.protocol.schema import describe_configs as describe_wire
from broker.protocol.schema import incremental_alter_configs as alter_wire
from chaos.toolchain.kafka import at_hand
from chaos.toolchain.lookout import FETCH
from tests.support.brokers.broker_process import ask
from tests.support.lacks import without

pytestmark = [
    pytest.mark.skipif(not at_hand(), reason=without("Apache Kafka and a whole Java", FETCH)),
    pytest.mark.timeout(240),
    pytest.mark.slow,
]

TOPIC, WITHIN_S = "described", 60.0
ALONE = {"default.replication.factor": "1", "min.insync.replicas": "1", "offsets.topic.replication.factor": "1"}
SET, DELETE, APPEND = ConfigOp.SET, ConfigOp.DELETE, ConfigOp.APPEND
OTHERWISE = {
    # Where the nodes listen and what they find there.
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    # One directory here, and a list with Kafka.
    "log.dir",
    "log.dirs",
    # Other defaults, on purpose: see docs/broker.md.
    "max.connections",
    "process.roles",
    "queued.max.request.bytes",
}
"""Settings that both have and describe otherwise."""

Change = tuple[str, int, str | None]
Told = dict[str, tuple[Any, ...]]


def call(cluster: Cluster, request: Any, response: Any, version: int) -> Any:
    with socket.create_connection(("127.0.0.1", cluster.ports[1]), WITHIN_S) as client:
        return ask(client, request, response, version)


def make_topic(cluster: Cluster) -> None:
    topic = create_wire.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    request = create_wire.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            code = call(cluster, request, create_wire.CreateTopicsResponse, 5).topics[0].error_code
        except OSError as not_yet:
            code = str(not_yet)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        assert time.monotonic() < deadline, f"no topic on {cluster.name}: {code}"
        time.sleep(0.1)


def described(cluster: Cluster, kind: int, name: str) -> tuple[int, Told]:
    """Of each setting: value, source, synonyms, read-only, sensitive, type."""
    resource = describe_wire.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = describe_wire.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [result] = call(cluster, request, describe_wire.DescribeConfigsResponse, 4).results
    told = {
        each.name: (
            each.value,
            each.config_source,
            [(synonym.name, synonym.value, synonym.source) for synonym in each.synonyms],
            each.read_only,
            each.is_sensitive,
            each.config_type,
        )
        for each in result.configs
    }
    return result.error_code, told


def altered(cluster: Cluster, kind: int, name: str, *changes: Change) -> tuple[int, str | None]:
    configs = [alter_wire.AlterableConfig(*change) for change in changes]
    resource = alter_wire.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = alter_wire.IncrementalAlterConfigsRequest(resources=[resource])
    [response] = call(cluster, request, alter_wire.IncrementalAlterConfigsResponse, 1).responses
    return response.error_code, response.error_message


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Cluster]]:
    """Ours and Kafka's, each with the topic."""
    ours = Squall(tmp_path_factory.mktemp("ours"), ALONE, (1,))
    kafka = Kafka(tmp_path_factory.mktemp("kafka"), ALONE, (1,))
    try:
        for cluster in (ours, kafka):
            cluster.start()
        for cluster in (ours, kafka):
            make_topic(cluster)
        yield ours, kafka
    finally:
        for cluster in (ours, kafka):
            cluster.stop()


def unlike(ours: Cluster, kafka: Cluster, kind: int, name: str) -> dict[str, tuple[Any, Any]]:
    """What both have and describe otherwise: ours and Kafka's."""
    (our_error, our), (its_error, its) = described(ours, kind, name), described(kafka, kind, name)
    assert our_error == its_error == ErrorCode.NONE
    assert name == "" or len(our.keys() & its.keys()) > 25
    return {each: (our[each], its[each]) for each in our.keys() & its.keys() - OTHERWISE if our[each] != its[each]}


def assert_alike(ours: Cluster, kafka: Cluster) -> None:
    """Described alike within the time that a change takes to reach the broker."""
    resources = [(TOPIC_RESOURCE, TOPIC), (BROKER_RESOURCE, "1"), (BROKER_RESOURCE, "")]
    deadline = time.monotonic() + 5
    while True:
        found = {resource: differ for resource in resources if (differ := unlike(ours, kafka, *resource))}
        if not found:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_all_settings_are_described_alike_untouched_and_altered_at_each_level(both: tuple[Cluster, Cluster]) -> None:
    steps: list[tuple[int, str, list[Change]]] = [
        (BROKER_RESOURCE, "1", [("log.retention.ms", SET, "777777"), ("log.flush.interval.ms", SET, "7")]),
        (BROKER_RESOURCE, "1", [("log.roll.ms", SET, "99999999"), ("max.connections.per.ip", SET, "99")]),
        (BROKER_RESOURCE, "", [("log.retention.ms", SET, "888888"), ("message.max.bytes", SET, "70000")]),
        (BROKER_RESOURCE, "", [("log.roll.jitter.ms", SET, "70000"), ("log.cleanup.policy", APPEND, "compact")]),
        (BROKER_RESOURCE, "", [("num.io.threads", SET, "9"), ("producer.id.expiration.ms", SET, "70000000")]),
        (TOPIC_RESOURCE, TOPIC, [("retention.ms", SET, "999999"), ("cleanup.policy", APPEND, "compact")]),
        (TOPIC_RESOURCE, TOPIC, [("leader.replication.throttled.replicas", SET, "0:1")]),
        (BROKER_RESOURCE, "", [("log.cleanup.policy", DELETE, None), ("log.retention.ms", DELETE, None)]),
        (BROKER_RESOURCE, "1", [("log.retention.ms", DELETE, None)]),
        (TOPIC_RESOURCE, TOPIC, [("retention.ms", DELETE, None)]),
    ]
    assert_alike(*both)
    for kind, name, changes in steps:
        for cluster in both:
            assert altered(cluster, kind, name, *changes) == (ErrorCode.NONE, None), (cluster.name, changes)
        assert_alike(*both)


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        (TOPIC_RESOURCE, TOPIC, ("leader.replication.throttled.replicas", SET, "garbage")),
        (TOPIC_RESOURCE, TOPIC, ("follower.replication.throttled.replicas", SET, "1:")),
        (TOPIC_RESOURCE, TOPIC, ("leader.replication.throttled.replicas", APPEND, "x")),
        (TOPIC_RESOURCE, TOPIC, ("retention.ms", SET, None)),
        (TOPIC_RESOURCE, TOPIC, ("retention.ms", APPEND, "5")),
        (TOPIC_RESOURCE, TOPIC, ("retention.ms", SET, "x")),
        (TOPIC_RESOURCE, "absent", ("retention.ms", SET, "5")),
        (BROKER_RESOURCE, "1", ("node.id", SET, "4")),
        (BROKER_RESOURCE, "", ("num.partitions", SET, "3")),
        (BROKER_RESOURCE, "1", ("log.retention.hours", SET, "3")),
        (BROKER_RESOURCE, "1", ("max.connections", SET, "-5")),
        (BROKER_RESOURCE, "", ("min.insync.replicas", SET, "0")),
        (BROKER_RESOURCE, "", ("max.connections", SET, "x")),
        (BROKER_RESOURCE, "1", ("max.connections", APPEND, "3")),
        (BROKER_RESOURCE, "1", ("max.connections", SET, None)),
        (7, "x", ("y", SET, "1")),
    ],
)
def test_what_kafka_refuses_is_refused_with_its_code(
    both: tuple[Cluster, Cluster], kind: int, name: str, change: Change
) -> None:
    ours, kafka = both
    code, _ = altered(kafka, kind, name, change)
    assert code != ErrorCode.NONE
    assert altered(ours, kind, name, change)[0] == code
