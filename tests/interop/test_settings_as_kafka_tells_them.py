"""Our broker answers DescribeConfigs and IncrementalAlterConfigs as Apache Kafka does.

Each test sends the same requests to one node of each, over plain sockets, so that no client library interprets the
answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.clusters import Kafka, MeasuredCluster, Squall
from squall.broker.cluster.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from squall.broker.config import ConfigOp
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import consumer_group_heartbeat as beat_wire
from squall.broker.protocol.schema import create_topics as create_wire
from squall.broker.protocol.schema import describe_configs as describe_wire
from squall.broker.protocol.schema import find_coordinator as find_wire
from squall.broker.protocol.schema import incremental_alter_configs as alter_wire
from squall.broker.protocol.schema import list_config_resources as list_wire
from squall.chaos.toolchain.kafka import kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from tests.support import kafka_settings
from tests.support.brokers.raw_client import RawClient
from tests.support.lacks import without

pytestmark = pytest.mark.skipif(not kafka_is_here(), reason=without("Apache Kafka and a whole Java", FETCH))

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
"""Settings that both brokers have and describe differently."""

Change = tuple[str, int, str | None]
Told = dict[str, tuple[Any, ...]]


def call(cluster: MeasuredCluster, request: Any, version: int) -> Any:
    with RawClient(cluster.ports[1], WITHIN_S) as client:
        return client.ask(request, version)


def make_topic(cluster: MeasuredCluster) -> None:
    topic = create_wire.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    request = create_wire.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            code = call(cluster, request, 5).topics[0].error_code
        except OSError as not_yet:
            code = str(not_yet)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        assert time.monotonic() < deadline, f"no topic on {cluster.name}: {code}"
        time.sleep(0.1)


def described(cluster: MeasuredCluster, kind: int, name: str) -> tuple[int, Told]:
    """Return the error, and for each setting its value, source, synonyms, type, and whether it is read-only and
    sensitive.
    """
    resource = describe_wire.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = describe_wire.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [result] = call(cluster, request, 4).results
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


def altered(cluster: MeasuredCluster, kind: int, name: str, *changes: Change) -> tuple[int, str | None]:
    configs = [alter_wire.AlterableConfig(*change) for change in changes]
    resource = alter_wire.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = alter_wire.IncrementalAlterConfigsRequest(resources=[resource])
    [response] = call(cluster, request, 1).responses
    return response.error_code, response.error_message


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MeasuredCluster, MeasuredCluster]]:
    """Yield our broker and Kafka's, each with the topic."""
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


def unlike(ours: MeasuredCluster, kafka: MeasuredCluster, kind: int, name: str) -> dict[str, tuple[Any, Any]]:
    """Return the settings that both brokers have and describe differently: our description and Kafka's."""
    (our_error, our), (its_error, its) = described(ours, kind, name), described(kafka, kind, name)
    assert our_error == its_error == ErrorCode.NONE
    assert name == "" or len(our.keys() & its.keys()) > 25
    return {each: (our[each], its[each]) for each in our.keys() & its.keys() - OTHERWISE if our[each] != its[each]}


def assert_alike(ours: MeasuredCluster, kafka: MeasuredCluster) -> None:
    """Assert that both describe their settings alike, within the time that a change takes to reach the broker."""
    resources = [(TOPIC_RESOURCE, TOPIC), (BROKER_RESOURCE, "1"), (BROKER_RESOURCE, "")]
    deadline = time.monotonic() + 5
    while True:
        found = {resource: differ for resource in resources if (differ := unlike(ours, kafka, *resource))}
        if not found:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_all_settings_are_described_alike_untouched_and_altered_at_each_level(
    both: tuple[MeasuredCluster, MeasuredCluster],
) -> None:
    steps: list[tuple[int, str, list[Change]]] = [
        (BROKER_RESOURCE, "1", [("log.retention.ms", SET, "777777"), ("log.flush.interval.ms", SET, "7")]),
        (BROKER_RESOURCE, "1", [("log.roll.ms", SET, "99999999"), ("max.connections.per.ip", SET, "99")]),
        (BROKER_RESOURCE, "", [("log.retention.ms", SET, "888888"), ("message.max.bytes", SET, "70000")]),
        (BROKER_RESOURCE, "", [("log.roll.jitter.ms", SET, "70000"), ("log.cleanup.policy", APPEND, "compact")]),
        (BROKER_RESOURCE, "", [("num.io.threads", SET, "9"), ("producer.id.expiration.ms", SET, "70000000")]),
        (TOPIC_RESOURCE, TOPIC, [("retention.ms", SET, "999999"), ("cleanup.policy", APPEND, "compact")]),
        (TOPIC_RESOURCE, TOPIC, [("leader.replication.throttled.replicas", SET, "0:1")]),
        (TOPIC_RESOURCE, TOPIC, [("local.retention.ms", SET, "1000"), ("remote.storage.enable", SET, "false")]),
        (TOPIC_RESOURCE, TOPIC, [("remote.log.copy.disable", SET, "true"), ("no.such.setting", DELETE, None)]),
        (BROKER_RESOURCE, "", [("log.local.retention.bytes", SET, "5"), ("log.local.retention.ms", SET, "6")]),
        (BROKER_RESOURCE, "", [("log.cleanup.policy", DELETE, None), ("log.retention.ms", DELETE, None)]),
        (BROKER_RESOURCE, "1", [("log.retention.ms", DELETE, None)]),
        (TOPIC_RESOURCE, TOPIC, [("retention.ms", DELETE, None)]),
    ]
    assert_alike(*both)
    for kind, name, changes in steps:
        for cluster in both:
            assert altered(cluster, kind, name, *changes) == (ErrorCode.NONE, None), (cluster.name, changes)
        assert_alike(*both)


def listed(cluster: MeasuredCluster, *kinds: int) -> list[tuple[int, str]]:
    request = list_wire.ListConfigResourcesRequest(resource_types=list(kinds))
    answer = call(cluster, request, 1)
    assert answer.error_code == ErrorCode.NONE
    return sorted((each.resource_type, each.resource_name) for each in answer.config_resources)


def await_wholly_alike(ours: MeasuredCluster, kafka: MeasuredCluster, kind: int, name: str) -> None:
    """Wait until both describe a resource alike without exceptions, within the time that a change takes to reach the
    broker.
    """
    deadline = time.monotonic() + 5
    while (our := described(ours, kind, name)) != (its := described(kafka, kind, name)):
        assert time.monotonic() < deadline, (our, its)
        time.sleep(0.1)


def test_groups_and_subscriptions_are_described_and_listed_alike(both: tuple[MeasuredCluster, MeasuredCluster]) -> None:
    ours, kafka = both
    steps: list[tuple[int, str, list[Change]]] = [
        (
            GROUP_RESOURCE,
            "g",
            [("consumer.session.timeout.ms", SET, "50000"), ("streams.num.standby.replicas", SET, "1")],
        ),
        (GROUP_RESOURCE, "g", [("share.auto.offset.reset", SET, "by_duration:PT1H"), ("nope", DELETE, None)]),
        (CLIENT_METRICS_RESOURCE, "m", [("interval.ms", SET, "1000"), ("metrics", SET, "a.,b.")]),
        (CLIENT_METRICS_RESOURCE, "m", [("match", SET, "client_id=a.*,client_source_port=1")]),
        (CLIENT_METRICS_RESOURCE, "m", [("interval.ms", DELETE, None)]),
    ]
    for kind, name in ((GROUP_RESOURCE, "g"), (CLIENT_METRICS_RESOURCE, "m")):
        assert described(ours, kind, name) == described(kafka, kind, name)
    for kind, name, changes in steps:
        for cluster in both:
            assert altered(cluster, kind, name, *changes) == (ErrorCode.NONE, None), (cluster.name, changes)
        await_wholly_alike(ours, kafka, kind, name)
    kinds = (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE)
    assert listed(ours, *kinds) == listed(kafka, *kinds)
    assert {(CLIENT_METRICS_RESOURCE, "m"), (GROUP_RESOURCE, "g")} <= set(listed(ours, *kinds))
    for kind in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
        assert described(ours, kind, "") == described(kafka, kind, "")


def heartbeat_interval_ms(cluster: MeasuredCluster, group_id: str) -> int:
    """Return the heartbeat interval that a member gets when it joins."""
    find = find_wire.FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
    beat = beat_wire.ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    deadline = time.monotonic() + WITHIN_S
    while True:
        call(cluster, find, 4)
        answer = call(cluster, beat, 1)
        if answer.error_code == ErrorCode.NONE:
            return int(answer.heartbeat_interval_ms)
        assert time.monotonic() < deadline, f"{cluster.name}: {answer.error_code} {answer.error_message}"
        time.sleep(0.1)


def test_members_are_told_their_groups_own_interval(both: tuple[MeasuredCluster, MeasuredCluster]) -> None:
    for cluster in both:
        change = ("consumer.heartbeat.interval.ms", SET, "6000")
        assert altered(cluster, GROUP_RESOURCE, "slow", change) == (ErrorCode.NONE, None)
    for cluster in both:
        assert [heartbeat_interval_ms(cluster, group) for group in ("slow", "usual")] == [6000, 5000]


def test_the_root_logger_is_told_and_altered_as_kafkas(both: tuple[MeasuredCluster, MeasuredCluster]) -> None:
    for level in ("TRACE", "WARN"):
        for cluster in both:
            assert altered(cluster, BROKER_LOGGER_RESOURCE, "1", ("root", SET, level)) == (ErrorCode.NONE, None)
        ours, kafka = (described(cluster, BROKER_LOGGER_RESOURCE, "1")[1]["root"] for cluster in both)
        assert ours == kafka
        assert ours[0] == level


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        (TOPIC_RESOURCE, TOPIC, ("leader.replication.throttled.replicas", SET, "garbage")),
        (TOPIC_RESOURCE, TOPIC, ("follower.replication.throttled.replicas", SET, "1:")),
        (TOPIC_RESOURCE, TOPIC, ("leader.replication.throttled.replicas", APPEND, "x")),
        (TOPIC_RESOURCE, TOPIC, ("retention.ms", SET, None)),
        (TOPIC_RESOURCE, TOPIC, ("retention.ms", APPEND, "5")),
        (TOPIC_RESOURCE, TOPIC, ("retention.ms", SET, "x")),
        (TOPIC_RESOURCE, TOPIC, ("remote.storage.enable", SET, "true")),
        (TOPIC_RESOURCE, TOPIC, ("local.retention.bytes", SET, "-3")),
        (TOPIC_RESOURCE, TOPIC, ("log.retention.ms", SET, "5")),
        (TOPIC_RESOURCE, "absent", ("retention.ms", SET, "5")),
        (BROKER_RESOURCE, "1", ("node.id", SET, "4")),
        (BROKER_RESOURCE, "", ("num.partitions", SET, "3")),
        (BROKER_RESOURCE, "1", ("group.share.max.size", SET, "9")),
        (BROKER_RESOURCE, "", ("group.coordinator.threads", SET, "9")),
        (BROKER_RESOURCE, "1", ("authorizer.class.name", SET, "x")),
        (BROKER_RESOURCE, "1", ("log.retention.hours", SET, "3")),
        (BROKER_RESOURCE, "1", ("max.connections", SET, "-5")),
        (BROKER_RESOURCE, "", ("min.insync.replicas", SET, "0")),
        (BROKER_RESOURCE, "", ("max.connections", SET, "x")),
        (BROKER_RESOURCE, "1", ("max.connections", APPEND, "3")),
        (BROKER_RESOURCE, "1", ("max.connections", SET, None)),
        (7, "x", ("y", SET, "1")),
        (BROKER_LOGGER_RESOURCE, "1", ("kafka", SET, "INFO")),
        (BROKER_LOGGER_RESOURCE, "1", ("root", SET, "info")),
        (BROKER_LOGGER_RESOURCE, "1", ("root", SET, None)),
        (BROKER_LOGGER_RESOURCE, "1", ("root", DELETE, None)),
        (BROKER_LOGGER_RESOURCE, "1", ("root", APPEND, "INFO")),
        (BROKER_LOGGER_RESOURCE, "2", ("root", SET, "INFO")),
        (BROKER_LOGGER_RESOURCE, "", ("root", SET, "INFO")),
        (GROUP_RESOURCE, "", ("consumer.session.timeout.ms", SET, "50000")),
        (GROUP_RESOURCE, "g", ("consumer.session.timeout.ms", SET, "1")),
        (GROUP_RESOURCE, "g", ("consumer.session.timeout.ms", SET, "x")),
        (GROUP_RESOURCE, "g", ("consumer.session.timeout.ms", SET, "70000")),
        (GROUP_RESOURCE, "g", ("consumer.session.timeout.ms", SET, None)),
        (GROUP_RESOURCE, "g", ("consumer.session.timeout.ms", APPEND, "4")),
        (GROUP_RESOURCE, "g", ("consumer.heartbeat.interval.ms", SET, "16000")),
        (GROUP_RESOURCE, "g", ("share.auto.offset.reset", SET, "by_duration:-PT1H")),
        (GROUP_RESOURCE, "g", ("share.delivery.count.limit", SET, "30")),
        (GROUP_RESOURCE, "g", ("share.isolation.level", SET, "read_x")),
        (GROUP_RESOURCE, "g", ("share.partition.max.record.locks", SET, "100000")),
        (GROUP_RESOURCE, "g", ("share.record.lock.duration.ms", SET, "2000")),
        (GROUP_RESOURCE, "g", ("streams.num.standby.replicas", SET, "9")),
        (GROUP_RESOURCE, "g", ("nope", SET, "1")),
        (CLIENT_METRICS_RESOURCE, "", ("interval.ms", SET, "1000")),
        (CLIENT_METRICS_RESOURCE, "m", ("interval.ms", SET, "1")),
        (CLIENT_METRICS_RESOURCE, "m", ("interval.ms", SET, "x")),
        (CLIENT_METRICS_RESOURCE, "m", ("match", SET, "client_id=[")),
        (CLIENT_METRICS_RESOURCE, "m", ("match", SET, "x=a")),
        (CLIENT_METRICS_RESOURCE, "m", ("metrics", APPEND, "a")),
        (CLIENT_METRICS_RESOURCE, "m", ("nope", SET, "1")),
    ],
)
def test_what_kafka_refuses_is_refused_with_its_code(
    both: tuple[MeasuredCluster, MeasuredCluster], kind: int, name: str, change: Change
) -> None:
    ours, kafka = both
    code, _ = altered(kafka, kind, name, change)
    assert code != ErrorCode.NONE
    assert altered(ours, kind, name, change)[0] == code


def test_the_list_of_kafkas_settings_is_what_its_classes_declare() -> None:
    assert kafka_settings.FILE.read_text() == kafka_settings.text()
