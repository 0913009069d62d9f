"""Responses that describe the cluster: Metadata, DescribeCluster, DescribeConfigs."""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.apis import describe as handlers
from squall.broker.apis import metadata
from squall.broker.apis.describe import AdminContext
from squall.broker.apis.describe_topic_partitions import describe_topic_partitions
from squall.broker.apis.metadata import MetadataHandler
from squall.broker.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE
from squall.broker.cluster.replay import replay
from squall.broker.net.served import FORWARDED, SERVED, SERVED_TO_NODES
from squall.broker.protocol.apis import APIS, ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import metadata as metadata_wire
from squall.broker.protocol.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from squall.broker.protocol.schema.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from squall.broker.protocol.schema.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from squall.broker.protocol.schema.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from squall.broker.protocol.schema.list_config_resources import ListConfigResourcesRequest
from squall.broker.protocol.schema.metadata_records import ConfigRecord, NoOpRecord, ProducerIdsRecord
from squall.broker.protocol.wire import ZERO_UUID
from tests.support.brokers.controller_harness import CLUSTER_ID, EPOCH, ControllerHarness

CLIENT = "CLIENT"


class Asked:
    """Replaces the creation of topics, and keeps the names that were asked for."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def create(self, name: str) -> None:
        self.names.append(name)


class Cluster:
    """An image with topics "t" (two partitions) and "__consumer_offsets", and the APIs that answer from it."""

    def __init__(self, **properties: str) -> None:
        self.harness = ControllerHarness(**properties)
        self.topic_id = self.harness.topic("t", [1, 2, 3], [2, 3, 1])
        self.context = AdminContext(self.harness.image, self.harness.config, CLUSTER_ID, 2)
        self.asked = Asked()
        creator: Any = self.asked
        self.handler = MetadataHandler(self.context, creator)

    def ask(
        self, *names: str | bytes, version: int = 13, listener: str = CLIENT, **fields: Any
    ) -> metadata_wire.MetadataResponse:
        """Metadata for topics by name or id."""
        topics = [
            metadata_wire.MetadataRequestTopic(name=name)
            if isinstance(name, str)
            else metadata_wire.MetadataRequestTopic(name=None, topic_id=name)
            for name in names
        ]
        request = metadata_wire.MetadataRequest(topics=topics, **fields)
        return self.send(request, version, listener)

    def send(
        self, request: metadata_wire.MetadataRequest, version: int, listener: str = CLIENT
    ) -> metadata_wire.MetadataResponse:
        body = self.handler.encode(request, version, listener)
        return metadata_wire.MetadataResponse.decode(memoryview(body), 0, version)[0]


# ----------------------------------------------------------------------------------------------------- ApiVersions


def versions(cluster: Cluster, version: int, name: str = "a-client", number: str = "1.0") -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=number)
    response = handlers.api_versions(cluster.context, request, version)
    return ApiVersionsResponse.decode(memoryview(response.encode(version)), 0, version)[0]


@pytest.mark.parametrize("version", range(5))
def test_what_is_listed_is_what_is_served_at_the_decided_versions(version: int) -> None:
    listed = {key.api_key: (key.min_version, key.max_version) for key in versions(Cluster(), version).api_keys}
    assert listed == {key: (APIS[key].min_version, APIS[key].max_version) for key in SERVED}


def test_nothing_between_nodes_is_listed_and_what_is_forwarded_is() -> None:
    assert not set(SERVED) & set(SERVED_TO_NODES)
    assert set(FORWARDED) < set(SERVED)


def test_features_are_told_with_the_offset_that_finalized_them() -> None:
    cluster = Cluster()
    kept = [(f"{kind}.version", 0, 1) for kind in ("group", "share", "streams")]
    others = [("eligible.leader.replicas.version", 0, 1), ("transaction.version", 0, 2), *kept]
    for version in (3, 4):
        response = versions(cluster, version)
        assert [(f.name, f.min_version, f.max_version) for f in response.supported_features] == [
            ("metadata.version", 7, 30),
            *(others if version > 3 else []),
        ]
        levels = [(f.name, f.max_version_level) for f in response.finalized_features]
        assert levels == [("metadata.version", 29), ("transaction.version", 2), ("group.version", 1)]
        assert response.finalized_features_epoch == cluster.harness.image.features_offset == 2


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "x" * 3 + "!"])
def test_a_malformed_software_name_is_refused_where_there_is_one(name: str) -> None:
    assert versions(Cluster(), 3, name=name).error_code == ErrorCode.INVALID_REQUEST
    assert versions(Cluster(), 3, number=name).error_code == ErrorCode.INVALID_REQUEST
    assert versions(Cluster(), 2, name=name).error_code == ErrorCode.NONE


def test_an_unknown_version_is_answered_in_version_0_with_the_way_out() -> None:
    body = handlers.api_versions_unsupported().encode(0)
    response, end = ApiVersionsResponse.decode(memoryview(body), 0, 0)
    assert end == len(body)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 4)]


# --------------------------------------------------------------------------------------------------------- Metadata


def test_metadata_tells_brokers_leaders_and_replicas() -> None:
    response = Cluster().ask("t")
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [
        (1, "host1", 9001),
        (2, "host2", 9002),
        (3, "host3", 9003),
    ]
    assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, 2)
    (topic,) = response.topics
    assert topic.error_code == 0
    assert [(p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
        (1, 0, [1, 2, 3], [1, 2, 3]),
        (2, 0, [2, 3, 1], [2, 3, 1]),
    ]


@pytest.mark.parametrize("version", range(14))
def test_metadata_is_answered_in_every_version(version: int) -> None:
    response = Cluster().ask("t", version=version)
    assert [topic.name for topic in response.topics] == ["t"]
    assert len(response.brokers) == 3


def test_all_topics_are_asked_for_by_null_and_in_version_0_by_none() -> None:
    cluster = Cluster()
    everything = metadata_wire.MetadataRequest(topics=None)
    nothing = metadata_wire.MetadataRequest(topics=[])
    assert [topic.name for topic in cluster.send(everything, 1).topics] == ["t"]
    assert [topic.name for topic in cluster.send(nothing, 0).topics] == ["t"]
    assert cluster.send(nothing, 1).topics == []


def test_topics_are_found_by_id() -> None:
    cluster = Cluster()
    known, unknown = cluster.ask(cluster.topic_id, b"?" * 16).topics
    assert (known.name, known.topic_id, known.error_code) == ("t", cluster.topic_id, ErrorCode.NONE)
    assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("by_id", [(ZERO_UUID, None), (b"?" * 16, None), (b"?" * 16, "u")])
def test_before_version_12_nothing_is_asked_for_by_id(version: int, by_id: tuple[bytes, str | None]) -> None:
    """These versions' responses cannot have a null name: encoding one was our bug, and ended the connection."""
    cluster = Cluster()
    names = metadata_wire.MetadataRequest(topics=[metadata_wire.MetadataRequestTopic(name="t")])
    assert [topic.error_code for topic in cluster.send(names, version).topics] == [ErrorCode.NONE]
    both = [(ZERO_UUID, "t"), by_id]
    asked = [metadata_wire.MetadataRequestTopic(topic_id=topic_id, name=name) for topic_id, name in both]
    told = cluster.send(metadata_wire.MetadataRequest(topics=asked), version).topics
    assert [(topic.error_code, topic.name, topic.topic_id) for topic in told] == [
        (ErrorCode.INVALID_REQUEST, "t", ZERO_UUID),
        (ErrorCode.INVALID_REQUEST, by_id[1] or "", by_id[0]),
    ]


def test_a_topic_asked_for_twice_is_told_once() -> None:
    assert len(Cluster().ask("t", "t").topics) == 1


def test_a_partition_without_a_leader_says_so_and_keeps_its_epoch() -> None:
    cluster = Cluster()
    cluster.harness.topic("u", [3])
    cluster.harness.lose(3)
    response = cluster.ask("u")
    (partition,) = response.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (partition.leader_epoch, partition.offline_replicas) == (1, [3])
    assert [broker.node_id for broker in response.brokers] == [1, 2]


def test_a_listener_that_a_leader_lacks_is_told_from_version_6_on() -> None:
    cluster = Cluster()
    for version, error in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):
        response = cluster.ask("t", version=version, listener="OTHER")
        assert response.brokers == []
        assert response.topics[0].partitions[0].error_code == error
        assert response.controller_id == -1


def test_version_0_leaves_out_replicas_that_are_not_there_and_says_so() -> None:
    cluster = Cluster()
    cluster.harness.lose(3)
    partition = cluster.ask("t", version=0).topics[0].partitions[0]
    assert (partition.error_code, partition.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [1, 2])
    assert cluster.ask("t", version=1).topics[0].partitions[0].replica_nodes == [1, 2, 3]


def test_without_a_known_controller_any_live_broker_is_told() -> None:
    cluster = Cluster()
    cluster.harness.lose(1, 2)
    assert cluster.ask("t").controller_id == 3


def test_internal_topics_are_marked() -> None:
    cluster = Cluster()
    cluster.harness.topic("__consumer_offsets", [1])
    assert cluster.ask("__consumer_offsets").topics[0].is_internal
    assert not cluster.ask("t").topics[0].is_internal


def test_operations_are_told_when_asked_for() -> None:
    cluster = Cluster()
    response = cluster.ask(
        "t",
        version=10,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert response.topics[0].topic_authorized_operations == 3576
    assert response.cluster_authorized_operations == 8096
    assert cluster.ask("t", version=10).topics[0].topic_authorized_operations == -(2**31)


def test_an_unknown_topic_is_made_when_that_is_wanted_and_allowed() -> None:
    cluster = Cluster()
    for _ in range(2):
        (topic,) = cluster.ask("new").topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.asked.names == ["new", "new"]
    cluster.ask("other", allow_auto_topic_creation=False)
    assert cluster.asked.names == ["new", "new"]
    strict = Cluster(auto_create_topics_enable="false")
    strict.ask("new")
    assert strict.asked.names == []


def test_a_name_that_no_topic_can_have_is_refused_and_not_made() -> None:
    cluster = Cluster()
    assert cluster.ask("a b").topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert cluster.asked.names == []


def test_an_answer_is_kept_until_the_image_changes_in_what_it_says() -> None:
    cluster = Cluster()
    image = cluster.harness.image
    request = metadata_wire.MetadataRequest(topics=None)
    first = cluster.handler.encode(request, 13, CLIENT)
    replay(image, NoOpRecord(), image.offset + 1, EPOCH)
    replay(image, ProducerIdsRecord(next_producer_id=1000), image.offset + 1, EPOCH)
    assert cluster.handler.encode(request, 13, CLIENT) is first
    assert cluster.handler.encode(request, 12, CLIENT) != first
    cluster.harness.controller.next_offset = image.offset + 1
    cluster.harness.lose(3)
    assert cluster.handler.encode(request, 13, CLIENT) != first


def test_the_answers_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "MAX_CACHED", 8)
    cluster = Cluster()
    for index in range(20):
        cluster.harness.topic(f"t{index}", [1])
    kept = set()
    for index in range(20):
        cluster.ask(f"t{index}")
        kept.add(len(cluster.handler._cached))
    assert max(kept) == 8


# -------------------------------------------------------------------------------------------------- DescribeCluster


def described(cluster: Cluster, version: int = 2, **fields: Any) -> DescribeClusterResponse:
    response = handlers.describe_cluster(cluster.context, DescribeClusterRequest(**fields), CLIENT)
    return DescribeClusterResponse.decode(memoryview(response.encode(version)), 0, version)[0]


@pytest.mark.parametrize("version", range(3))
def test_a_cluster_is_described_by_its_live_brokers(version: int) -> None:
    cluster = Cluster()
    cluster.harness.lose(3)
    response = described(cluster, version)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, CLUSTER_ID, 2)
    assert [broker.broker_id for broker in response.brokers] == [1, 2]


def test_fenced_brokers_are_told_when_asked_for() -> None:
    cluster = Cluster()
    cluster.harness.lose(3)
    response = described(cluster, include_fenced_brokers=True)
    assert [(broker.broker_id, broker.is_fenced) for broker in response.brokers] == [(1, False), (2, False), (3, True)]


def test_controllers_are_not_described_here_and_nothing_of_an_unknown_type() -> None:
    assert described(Cluster(), endpoint_type=2).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert described(Cluster(), endpoint_type=0).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


# -------------------------------------------------------------------------------------------------- DescribeConfigs


def entries(
    cluster: Cluster, kind: int, name: str, *keys: str, version: int = 4
) -> tuple[ErrorCode, dict[str, tuple[str | None, int]]]:
    """Describe the settings of a resource. Returns (error, name to (value, source))."""
    from squall.broker.protocol.schema.describe_configs import DescribeConfigsResponse

    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    body = handlers.describe_configs(cluster.context, request).encode(version)
    (result,) = DescribeConfigsResponse.decode(memoryview(body), 0, version)[0].results
    return ErrorCode(result.error_code), {entry.name: (entry.value, entry.config_source) for entry in result.configs}


def set_config(cluster: Cluster, kind: int, name: str, key: str, value: str) -> None:
    record = ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
    replay(cluster.harness.image, record, cluster.harness.image.offset + 1, EPOCH)


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_settings_tell_where_they_come_from(version: int) -> None:
    cluster = Cluster(min_insync_replicas="2")
    set_config(cluster, TOPIC_RESOURCE, "t", "retention.ms", "5")
    error, told = entries(cluster, TOPIC_RESOURCE, "t", version=version)
    assert error == ErrorCode.NONE
    assert told["retention.ms"] == ("5", 1)
    assert told["min.insync.replicas"] == ("2", 4)
    assert told["cleanup.policy"] == ("delete", 5)
    set_config(cluster, BROKER_RESOURCE, "", "min.insync.replicas", "3")
    assert entries(cluster, TOPIC_RESOURCE, "t")[1]["min.insync.replicas"] == ("3", 3)
    set_config(cluster, BROKER_RESOURCE, "1", "min.insync.replicas", "1")
    assert entries(cluster, TOPIC_RESOURCE, "t")[1]["min.insync.replicas"] == ("1", 2)


def test_only_the_settings_asked_for_are_told() -> None:
    assert list(entries(Cluster(), TOPIC_RESOURCE, "t", "retention.ms")[1]) == ["retention.ms"]


def test_a_broker_tells_its_own_settings_and_those_of_all() -> None:
    cluster = Cluster()
    set_config(cluster, BROKER_RESOURCE, "", "min.insync.replicas", "2")
    error, own = entries(cluster, BROKER_RESOURCE, "1")
    assert error == ErrorCode.NONE
    assert own["node.id"] == ("1", 4)
    assert own["min.insync.replicas"] == ("2", 3)
    assert entries(cluster, BROKER_RESOURCE, "") == (ErrorCode.NONE, {"min.insync.replicas": ("2", 3)})


def test_what_this_broker_cannot_describe_is_refused() -> None:
    cluster = Cluster()
    assert entries(cluster, TOPIC_RESOURCE, "u") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {})
    assert entries(cluster, TOPIC_RESOURCE, "u u") == (ErrorCode.INVALID_TOPIC_EXCEPTION, {})
    assert entries(cluster, TOPIC_RESOURCE, "") == (ErrorCode.INVALID_TOPIC_EXCEPTION, {})
    assert entries(cluster, BROKER_RESOURCE, "2") == (ErrorCode.INVALID_REQUEST, {})
    assert entries(cluster, 99, "x") == (ErrorCode.INVALID_REQUEST, {})


def test_every_served_api_has_a_row_in_the_table() -> None:
    assert all(key in APIS for key in (*SERVED, *SERVED_TO_NODES))
    assert len(set(SERVED)) == len(SERVED)
    assert ApiKey.METADATA in SERVED


# ------------------------------------------------------------------------------- resources, and topics page by page


def synonyms_of(cluster: Cluster, key: str) -> list[tuple[str, str | None, int]]:
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name="t", configuration_keys=[key])
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [entry] = handlers.describe_configs(cluster.context, request).results[0].configs
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


def test_a_time_has_no_synonym_until_it_is_given_itself_as_with_kafka() -> None:
    cluster = Cluster()
    for name in ("retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms"):
        assert synonyms_of(cluster, name) == []
    assert synonyms_of(cluster, "leader.replication.throttled.replicas") == []
    assert synonyms_of(Cluster(log_retention_minutes="7"), "retention.ms") == []
    given = synonyms_of(Cluster(log_retention_ms="7"), "retention.ms")
    assert given == [("log.retention.ms", "7", 4), ("log.retention.hours", "168", 5)]


def test_every_place_that_has_a_setting_is_named_the_nearest_first() -> None:
    cluster = Cluster(log_retention_ms="7", log_retention_minutes="8")
    set_config(cluster, BROKER_RESOURCE, "", "log.retention.ms", "6")
    set_config(cluster, BROKER_RESOURCE, "1", "log.retention.ms", "5")
    set_config(cluster, TOPIC_RESOURCE, "t", "retention.ms", "4")
    assert synonyms_of(cluster, "retention.ms") == [
        ("retention.ms", "4", 1),
        ("log.retention.ms", "5", 2),
        ("log.retention.ms", "6", 3),
        ("log.retention.ms", "7", 4),
        ("log.retention.minutes", "8", 4),
        ("log.retention.hours", "168", 5),
    ]


def test_a_time_altered_for_brokers_names_what_would_stand_in_for_it_as_with_kafka() -> None:
    def told(cluster: Cluster, key: str) -> tuple[list[tuple[str, str | None, int]], bool]:
        resource = DescribeConfigsResource(resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=[key])
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        [entry] = handlers.describe_configs(cluster.context, request).results[0].configs
        return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms], entry.read_only

    cluster = Cluster()
    assert told(cluster, "log.retention.ms") == ([], False)
    assert told(cluster, "log.retention.hours") == ([("log.retention.hours", "168", 5)], True)
    set_config(cluster, BROKER_RESOURCE, "1", "log.retention.ms", "7")
    coarser = ("log.retention.hours", "168", 5)
    assert told(cluster, "log.retention.ms") == ([("log.retention.ms", "7", 2), coarser], False)
    assert told(cluster, "log.retention.minutes") == ([], True)


def test_a_broker_has_one_logger_and_another_brokers_are_not_asked_for_here() -> None:
    own = str(Cluster().context.config.node_id)
    assert entries(Cluster(), 8, own) == (ErrorCode.NONE, {"root": ("INFO", 6)})
    assert entries(Cluster(), 8, "77")[0] == ErrorCode.INVALID_REQUEST


def resources(version: int, *kinds: int, of: Cluster | None = None) -> tuple[int, list[tuple[int, str]]]:
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    response = handlers.list_config_resources((of or Cluster()).context, request, version)
    return response.error_code, [(each.resource_type, each.resource_name) for each in response.config_resources]


def test_what_has_settings_is_listed_by_kind() -> None:
    assert resources(1, TOPIC_RESOURCE) == (0, [(TOPIC_RESOURCE, "t")])
    assert resources(1, BROKER_RESOURCE, 8) == (0, [(kind, str(n)) for kind in (BROKER_RESOURCE, 8) for n in (1, 2, 3)])
    assert resources(1, 16, 32) == (0, [])
    cluster = Cluster()
    set_config(cluster, 32, "g", "consumer.session.timeout.ms", "50000")
    set_config(cluster, 16, "m", "interval.ms", "1000")
    assert resources(1, 32, of=cluster) == (0, [(32, "g")])
    assert resources(0, of=cluster) == (0, [(16, "m")])
    assert len(resources(1)[1]) == 7
    assert resources(0) == (0, [])
    assert resources(1, 5)[0] == ErrorCode.UNSUPPORTED_VERSION


def paged(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name) for name in names],
        response_partition_limit=limit,
        cursor=DescribeTopicPartitionsRequestCursor(*cursor) if cursor else None,
    )
    body = describe_topic_partitions(Cluster().context, request, CLIENT).encode(0)
    return DescribeTopicPartitionsResponse.decode(memoryview(body), 0, 0)[0]


def test_partitions_are_told_with_their_eligible_replicas() -> None:
    [topic] = paged().topics
    assert (topic.error_code, topic.name) == (0, "t")
    assert [(p.partition_index, p.leader_id, p.isr_nodes, p.eligible_leader_replicas) for p in topic.partitions] == [
        (0, 1, [1, 2, 3], []),
        (1, 2, [2, 3, 1], []),
    ]


def test_a_page_that_is_full_says_where_the_next_one_begins() -> None:
    first = paged(limit=1)
    assert [p.partition_index for p in first.topics[0].partitions] == [0]
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("t", 1)
    second = paged(limit=1, cursor=("t", 1))
    assert [p.partition_index for p in second.topics[0].partitions] == [1]
    assert second.next_cursor is None


def test_topics_that_are_not_there_have_errors_of_their_own() -> None:
    topics = paged("gone", "t", "not/a/name").topics
    assert {topic.topic_authorized_operations for topic in topics} == {handlers.TOPIC_OPERATIONS}, "as with Kafka"
    found = {topic.name: topic.error_code for topic in topics}
    assert found == {
        "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "not/a/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "t": ErrorCode.NONE,
    }
