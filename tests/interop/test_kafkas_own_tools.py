"""Kafka's own command-line tools on a cluster of ours: reassignments, sizes of logs, settings of one broker."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from squall.chaos.toolchain.kafka import apache_kafka, kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from tests.support.lacks import without

pytestmark = pytest.mark.skipif(not kafka_is_here(), reason=without("Apache Kafka and a whole Java", FETCH))

QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-Xmx256m")
THROTTLE = "1000000"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
WITHIN_S = 30.0


class Tools:
    """Runs Kafka's tools against the cluster."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def run(self, main: str, *arguments: str) -> list[str]:
        """Run a tool, assert that it succeeds, and return the lines that it prints."""
        given = ["--bootstrap-server", self._bootstrap, *arguments]
        command = apache_kafka(lambda line: None).command(main, given, flags=QUICK_JVM)
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout.splitlines()

    def reassign(self, *arguments: str) -> list[str]:
        return self.run("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", *arguments)

    def configs(self, *arguments: str) -> list[str]:
        return self.run("kafka.admin.ConfigCommand", *arguments)


@pytest.fixture
def admin(cluster: Any) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


@pytest.fixture
def tools(cluster: Any) -> Tools:
    return Tools(cluster.bootstrap)


def fill(cluster: Any, admin: Any, topic: str, replicas: list[list[int]]) -> None:
    """Create a topic with these replicas of each partition, and write some records to each."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import NewTopic

    admin.create_topics([NewTopic(topic, len(replicas), replica_assignment=replicas)])[topic].result(WITHIN_S)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(60):
        producer.produce(topic, b"x" * 1000, partition=number % len(replicas))
    assert producer.flush(WITHIN_S) == 0


def altered(admin: Any, kind: str, name: str) -> dict[str, str]:
    """Return the settings of a resource that were altered at run time."""
    from confluent_kafka.admin import ConfigResource, ConfigSource

    [future] = admin.describe_configs([ConfigResource(ConfigResource.Type[kind], name)]).values()
    sources = (ConfigSource.DYNAMIC_TOPIC_CONFIG.value, ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    return {each.name: each.value for each in future.result(WITHIN_S).values() if each.source in sources}


def in_sync(admin: Any, topic: str) -> list[list[int]]:
    partitions = admin.list_topics(topic, WITHIN_S).topics[topic].partitions
    return [sorted(partitions[index].isrs) for index in sorted(partitions)]


def await_in_sync(admin: Any, topic: str, wanted: list[list[int]]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while (found := in_sync(admin, topic)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_a_throttled_reassignment_from_generate_over_execute_to_verify(
    cluster: Any, admin: Any, tools: Tools, tmp_path: Path
) -> None:
    fill(cluster, admin, "moving", [[1, 2], [2, 1]])
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text('{"topics": [{"topic": "moving"}], "version": 1}')
    said = tools.reassign("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "2,3")
    now, proposed = (json.loads(line) for line in said if line.startswith("{"))
    assert [each["replicas"] for each in now["partitions"]] == [[1, 2], [2, 1]]
    assert now["partitions"][0]["log_dirs"] == [str(cluster.folder / "n1"), str(cluster.folder / "n2")]
    wanted = [sorted(each["replicas"]) for each in proposed["partitions"]]
    assert wanted == [[2, 3], [2, 3]]
    plan.write_text(json.dumps(proposed))

    said = tools.reassign("--execute", "--reassignment-json-file", str(plan), "--throttle", THROTTLE)
    assert f"The inter-broker throttle limit was set to {THROTTLE} B/s" in said
    assert "Successfully started partition reassignments for moving-0,moving-1" in said
    assert sorted(altered(admin, "TOPIC", "moving")) == sorted(REPLICAS)
    for broker in ("1", "2", "3"):
        assert altered(admin, "BROKER", broker) == dict.fromkeys(RATES, THROTTLE)

    await_in_sync(admin, "moving", wanted)
    said = tools.reassign("--verify", "--reassignment-json-file", str(plan))
    for partition in ("moving-0", "moving-1"):
        assert f"Reassignment of partition {partition} is completed." in said
    assert altered(admin, "TOPIC", "moving") == {}
    assert [altered(admin, "BROKER", broker) for broker in ("1", "2", "3")] == [{}, {}, {}]


def test_sizes_of_log_directories_and_settings_of_one_broker(cluster: Any, admin: Any, tools: Tools) -> None:
    fill(cluster, admin, "sized", [[1, 2], [2, 3]])
    [told] = [line for line in tools.run("org.apache.kafka.tools.LogDirsCommand", "--describe") if line[:1] == "{"]
    found = {
        (broker["broker"], each["partition"]): (each["size"], each["offsetLag"])
        for broker in json.loads(told)["brokers"]
        for folder in broker["logDirs"]
        for each in folder["partitions"]
        if each["partition"].startswith("sized-")
    }
    files = {
        (node, f"sized-{index}"): sum(
            path.stat().st_size for path in (cluster.folder / f"n{node}" / f"sized-{index}").glob("*.log")
        )
        for index, nodes in enumerate([[1, 2], [2, 3]])
        for node in nodes
    }
    assert found == {place: (size, 0) for place, size in files.items()}

    one = ("--entity-type", "brokers", "--entity-name", "2")
    tools.configs("--alter", *one, "--add-config", "log.retention.ms=123456789")
    assert altered(admin, "BROKER", "2") == {"log.retention.ms": "123456789"}
    assert altered(admin, "BROKER", "1") == {}
    [line] = [line for line in tools.configs("--describe", *one) if "log.retention.ms=" in line]
    assert "DYNAMIC_BROKER_CONFIG:log.retention.ms=123456789" in line
    assert "DEFAULT_CONFIG:log.retention.hours=168" in line
    tools.configs("--alter", *one, "--delete-config", "log.retention.ms")
    assert altered(admin, "BROKER", "2") == {}
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    tools.configs("--alter", *loggers, "--add-config", "root=WARN")
    said = [line for line in tools.configs("--describe", *loggers) if line]
    assert said == ["Dynamic configs for broker-logger 1 are:", "  root=WARN sensitive=false synonyms={}"]


def test_settings_of_a_group_and_of_a_subscription_by_kafkas_tools(tools: Tools) -> None:
    for kind, name, setting in (
        ("groups", "readers", "consumer.session.timeout.ms=50000"),
        ("client-metrics", "of-producers", "interval.ms=1000"),
    ):
        one = ("--entity-type", kind, "--entity-name", name)
        tools.configs("--alter", *one, "--add-config", setting)
        assert any(line.strip().startswith(setting) for line in tools.configs("--describe", *one)), kind
