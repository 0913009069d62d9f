"""FindCoordinator: which broker coordinates, and the creation of the coordinator's log."""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.apis.find_coordinator import CoordinatorFinder
from squall.broker.cluster.image import Broker, ClusterImage, PartitionImage, Topic
from squall.broker.coordinators.partitions import java_hash, partition_of
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.support.brokers.in_memory import broker_config

LISTENER = "CLIENT"


class Creations:
    """Replaces TopicCreator."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def create_log(self, topic: Any) -> None:
        self.asked.append((topic.name, topic))


class FinderHarness:
    def __init__(self, leaders: tuple[int, ...] = (), log: str = "__transaction_state", **settings: str) -> None:
        self.image, self.creations = ClusterImage(), Creations()
        for broker_id in (1, 2):
            endpoints = {LISTENER: (f"host{broker_id}", 9000 + broker_id)}
            self.image.brokers[broker_id] = Broker(broker_id, 10, bytes(16), endpoints, fenced=broker_id == 2)
        if leaders:
            parts = {n: PartitionImage((1, 2), (1, 2), leader, 0, 0) for n, leader in enumerate(leaders)}
            self.image.topics_by_id[bytes(16)] = Topic(log, bytes(16), parts)
            self.image.topic_ids[log] = bytes(16)
        creator: Any = self.creations
        self.finder = CoordinatorFinder(self.image, broker_config(**settings), creator)

    def find(self, *keys: str, key_type: int = 1, version: int = 4) -> list[tuple[str, int, int, str, int]]:
        batched = version >= 4
        request = FindCoordinatorRequest(
            key="" if batched else keys[0], key_type=key_type, coordinator_keys=list(keys) if batched else []
        )
        body = self.finder.find_coordinator(request, version, LISTENER).encode(version)
        response, _ = FindCoordinatorResponse.decode(memoryview(body), 0, version)
        if not batched:
            return [(keys[0], response.error_code, response.node_id, response.host, response.port)]
        return [(c.key, c.error_code, c.node_id, c.host, c.port) for c in response.coordinators]


@pytest.mark.parametrize("version", range(7))
def test_the_leader_of_the_groups_partition_coordinates_it(version: int) -> None:
    harness = FinderHarness((1,), log="__consumer_offsets")
    assert harness.find("g", key_type=0, version=version) == [("g", 0, 1, "host1", 9001)]
    assert not harness.creations.asked


def test_without_a_log_of_groups_it_is_created_as_kafka_creates_it() -> None:
    harness = FinderHarness((1,), offsets_topic_num_partitions="7")
    assert harness.find("g", key_type=0) == [("g", int(ErrorCode.COORDINATOR_NOT_AVAILABLE), -1, "", -1)]
    [(name, topic)] = harness.creations.asked
    assert (name, topic.name, topic.num_partitions, topic.replication_factor) == (name, "__consumer_offsets", 7, 3)
    assert {config.name: config.value for config in topic.configs} == {
        "compression.type": "producer",
        "cleanup.policy": "compact",
        "segment.bytes": str(100 << 20),
    }


@pytest.mark.parametrize("version", range(1, 7))
def test_the_leader_of_the_ids_partition_coordinates_it(version: int) -> None:
    harness = FinderHarness((1,))
    assert harness.find("x", version=version) == [("x", 0, 1, "host1", 9001)]
    assert not harness.creations.asked


def test_ids_spread_over_the_partitions_by_javas_hash() -> None:
    assert [partition_of(key, 50) for key in ("", "a", "my-txn", "hello")] == [0, 47, 45, 22]
    assert java_hash("\U0001f600") == 1_772_899, "of two code units"
    assert partition_of("polygenelubricants", 50) == 0, "its hash is the smallest int"


def test_without_a_log_it_is_created_as_kafka_creates_it() -> None:
    harness = FinderHarness(transaction_state_log_num_partitions="7", transaction_state_log_min_isr="1")
    assert harness.find("x") == [("x", int(ErrorCode.COORDINATOR_NOT_AVAILABLE), -1, "", -1)]
    [(name, topic)] = harness.creations.asked
    assert (name, topic.name, topic.num_partitions, topic.replication_factor) == (name, "__transaction_state", 7, 3)
    assert {config.name: config.value for config in topic.configs} == {
        "unclean.leader.election.enable": "false",
        "compression.type": "uncompressed",
        "cleanup.policy": "compact",
        "min.insync.replicas": "1",
        "segment.bytes": str(100 << 20),
    }


@pytest.mark.parametrize("leader", [-1, 2, 7])
def test_nobody_coordinates_without_a_leader_that_serves(leader: int) -> None:
    assert FinderHarness((leader,)).find("x") == [("x", int(ErrorCode.COORDINATOR_NOT_AVAILABLE), -1, "", -1)]


def test_another_type_of_key_is_refused() -> None:
    assert FinderHarness().find("x", key_type=5)[0][1] == ErrorCode.INVALID_REQUEST


def test_a_coordinator_that_is_found_has_an_empty_message_from_version_4_on_and_none_before() -> None:
    """As with Kafka (`FindCoordinatorResponse`)."""
    finder = FinderHarness((1,)).finder
    batched = finder.find_coordinator(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]), 4, LISTENER)
    assert [each.error_message for each in batched.coordinators] == [""]
    assert finder.find_coordinator(FindCoordinatorRequest("x", 1), 3, LISTENER).error_message is None
