"""CreateTopics, CreatePartitions, DeleteTopics: every rule and error."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from squall.broker.cluster.image import TOPIC_RESOURCE
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import create_partitions as partitions_wire
from squall.broker.protocol.schema import create_topics as create_wire
from squall.broker.protocol.schema import delete_topics as delete_wire
from squall.broker.protocol.schema.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from tests.support.brokers.controller_harness import ControllerHarness


def assigned(**replicas: list[int]) -> list[create_wire.CreatableReplicaAssignment]:
    """assigned(p0=[1, 2]): replicas by partition."""
    return [
        create_wire.CreatableReplicaAssignment(partition_index=int(name[1:]), broker_ids=brokers)
        for name, brokers in replicas.items()
    ]


def outcome(result: Any) -> tuple[ErrorCode, str | None]:
    return ErrorCode(result.error_code), result.error_message


# ------------------------------------------------------------------------------------------------------- CreateTopics


def test_a_topic_is_made_with_leaders_in_their_isrs_at_epoch_zero() -> None:
    harness = ControllerHarness()
    result = harness.create("t", 3, 2)
    assert outcome(result) == (ErrorCode.NONE, None)
    assert (result.num_partitions, result.replication_factor) == (3, 2)
    assert result.topic_id == harness.image.topic_ids["t"]
    for index in range(3):
        partition = harness.partition("t", index)
        assert partition.leader == partition.replicas[0]
        assert partition.isr == partition.replicas
        assert len(set(partition.replicas)) == 2
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)


def test_records_come_as_topic_then_settings_then_partitions() -> None:
    harness = ControllerHarness()
    at = len(harness.log)
    harness.create("t", 2, 1, configs={"retention_ms": "5"})
    assert [type(record) for _, record in harness.log[at:]] == [
        TopicRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
    ]


def test_minus_one_takes_the_defaults_of_the_controller() -> None:
    harness = ControllerHarness(num_partitions="4", default_replication_factor="3")
    result = harness.create("t")
    assert (result.num_partitions, result.replication_factor) == (4, 3)


def test_the_settings_of_a_new_topic_are_kept_and_told() -> None:
    harness = ControllerHarness()
    result = harness.create("t", 1, 1, configs={"min_insync_replicas": "2"})
    assert harness.image.configs[TOPIC_RESOURCE, "t"] == {"min.insync.replicas": "2"}
    told = {entry.name: (entry.value, entry.config_source) for entry in result.configs or []}
    assert told["min.insync.replicas"] == ("2", 1)
    assert told["cleanup.policy"] == ("delete", 5)


def test_validate_only_answers_the_same_and_makes_nothing() -> None:
    harness = ControllerHarness()
    before = len(harness.log)
    result = harness.create("t", 2, 2, validate_only=True)
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 2)
    assert len(harness.log) == before
    assert harness.create("t", 2, 9, validate_only=True).error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_topic_ids_are_random_uuids() -> None:
    harness = ControllerHarness()
    ids = [harness.topic(f"t{n}", [1]) for n in range(3)]
    assert len(set(ids)) == 3
    assert all(topic_id[6] >> 4 == 4 and topic_id[8] >> 6 == 2 for topic_id in ids)


NAME_FAULTS = [
    ("", "the empty string is not allowed"),
    (".", "'.' or '..' is not allowed"),
    ("..", "'.' or '..' is not allowed"),
    ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
    ("é", "'é' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
]


@pytest.mark.parametrize(("name", "fault"), NAME_FAULTS)
def test_a_name_that_is_not_allowed_is_refused(name: str, fault: str) -> None:
    expected = (ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
    assert outcome(ControllerHarness().create(name, 1, 1)) == expected


def test_the_longest_name_is_allowed() -> None:
    assert ControllerHarness().create("x" * 249, 1, 1).error_code == ErrorCode.NONE


def test_a_name_that_is_taken_is_refused() -> None:
    harness = ControllerHarness()
    harness.topic("a.b", [1])
    assert outcome(harness.create("a.b", 1, 1)) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists.")


def test_a_name_that_differs_only_in_dots_and_underscores_is_refused() -> None:
    harness = ControllerHarness()
    harness.topic("a.b", [1])
    expected = (ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b")
    assert outcome(harness.create("a_b", 1, 1)) == expected


def test_nobody_makes_the_metadata_topic() -> None:
    assert ControllerHarness().create("__cluster_metadata", 1, 1).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_topic_named_twice_in_a_request_is_not_made() -> None:
    harness = ControllerHarness()
    topics = [create_wire.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in "aba"]
    results = harness.do(ApiKey.CREATE_TOPICS, create_wire.CreateTopicsRequest(topics=topics)).topics
    assert [(result.name, *outcome(result)) for result in results] == [
        ("a", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ("b", ErrorCode.NONE, None),
    ]


def test_one_request_cannot_make_any_number_of_partitions() -> None:
    harness = ControllerHarness()
    assert harness.create("t", 10_001, 1).error_code == ErrorCode.POLICY_VIOLATION
    assert harness.create("t", 1_000_000_000, 1).error_code == ErrorCode.POLICY_VIOLATION


def test_the_default_number_of_partitions_counts_in_a_request_too() -> None:
    """With -1 a request could make any number."""
    harness = ControllerHarness(num_partitions="100")
    topics = [create_wire.CreatableTopic(name=f"t{n}", num_partitions=-1, replication_factor=1) for n in range(101)]
    made = harness.do(ApiKey.CREATE_TOPICS, create_wire.CreateTopicsRequest(topics=topics))
    assert {topic.error_code for topic in made.topics} == {ErrorCode.POLICY_VIOLATION}
    made = harness.do(ApiKey.CREATE_TOPICS, create_wire.CreateTopicsRequest(topics=topics[1:]))
    assert {topic.error_code for topic in made.topics} == {ErrorCode.NONE}


def test_an_answer_tells_the_settings_of_some_topics_and_an_error_in_place_of_the_others() -> None:
    harness = ControllerHarness(squall_request_max_elements="1000", squall_broker_max_replicas="1000")
    setting = create_wire.CreatableTopicConfig(name="retention.ms", value="5")
    topics = [
        create_wire.CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1, configs=[setting][: n % 2])
        for n in range(100)
    ]
    made = harness.do(ApiKey.CREATE_TOPICS, create_wire.CreateTopicsRequest(topics=topics)).topics
    assert {topic.error_code for topic in made} == {ErrorCode.NONE}
    told = [{entry.name: (entry.value, entry.config_source) for entry in topic.configs or []} for topic in made]
    assert [each["retention.ms"] for each in told[:4]] == [("604800000", 5), ("5", 1)] * 2
    fit = 1000 // len(told[0])
    assert [bool(each) for each in told] == [True] * fit + [False] * (100 - fit)
    errors = [topic.topic_config_error_code for topic in made]
    assert errors == [0] * fit + [ErrorCode.INVALID_REQUEST] * (100 - fit)
    assert made[-1].configs is None
    assert harness.image.configs[TOPIC_RESOURCE, "t99"] == {"retention.ms": "5"}


def test_very_many_names_are_decided_with_few_steps_each() -> None:
    """The names of all topics were gone through for each new one, and all settings were put together for each."""
    harness = ControllerHarness(squall_broker_max_replicas="100000")
    there = [create_wire.CreatableTopic(name=f"a_{n}", num_partitions=1, replication_factor=1) for n in range(1000)]
    harness.do(ApiKey.CREATE_TOPICS, create_wire.CreateTopicsRequest(topics=there))
    topics = [create_wire.CreatableTopic(name=f"b_{n}", num_partitions=-1, replication_factor=1) for n in range(600)]
    steps = 0

    def count(*_: Any) -> None:
        nonlocal steps
        steps += 1

    request = create_wire.CreateTopicsRequest(topics=topics, validate_only=True)
    sys.setprofile(count)
    try:
        decision = harness.decide(ApiKey.CREATE_TOPICS, request)
    finally:
        sys.setprofile(None)
    assert {topic.error_code for topic in decision.reply.topics} == {ErrorCode.NONE}
    assert steps < 600 * 400


@pytest.mark.parametrize("factor", [0, -2])
def test_a_replication_factor_that_cannot_be_is_refused(factor: int) -> None:
    message = "Replication factor must be larger than 0, or -1 to use the default value."
    assert outcome(ControllerHarness().create("t", 1, factor)) == (ErrorCode.INVALID_REPLICATION_FACTOR, message)


@pytest.mark.parametrize("count", [0, -2])
def test_a_number_of_partitions_that_cannot_be_is_refused(count: int) -> None:
    message = "Number of partitions was set to an invalid non-positive value."
    assert outcome(ControllerHarness().create("t", count, 1)) == (ErrorCode.INVALID_PARTITIONS, message)


def test_more_replicas_than_brokers_are_refused() -> None:
    message = (
        "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached because "
        "only 3 broker(s) are registered."
    )
    assert outcome(ControllerHarness().create("t", 1, 4)) == (ErrorCode.INVALID_REPLICATION_FACTOR, message)


def test_without_a_live_broker_no_topic_is_made() -> None:
    harness = ControllerHarness()
    harness.lose(1, 2, 3)
    message = "Unable to replicate the partition 2 time(s): All brokers are currently fenced."
    assert outcome(harness.create("t", 1, 2)) == (ErrorCode.INVALID_REPLICATION_FACTOR, message)


def test_a_setting_without_a_value_is_refused() -> None:
    message = "Null value not supported for topic configs: retention.ms"
    assert outcome(ControllerHarness().create("t", 1, 1, configs={"retention_ms": None})) == (
        ErrorCode.INVALID_CONFIG,
        message,
    )


@pytest.mark.parametrize("configs", [{"retention_ms": "soon"}, {"no_such": "1"}, {"min_insync_replicas": "0"}])
def test_a_setting_that_cannot_be_is_refused(configs: dict[str, str]) -> None:
    harness = ControllerHarness()
    assert harness.create("t", 1, 1, configs=configs).error_code == ErrorCode.INVALID_CONFIG
    assert harness.image.topic_ids == {}


# ------------------------------------------------------------------------------------------------- manual assignment


def test_a_manual_assignment_is_followed() -> None:
    harness = ControllerHarness()
    harness.topic("t", [3, 1], [2, 3])
    assert [harness.partition("t", index).replicas for index in range(2)] == [(3, 1), (2, 3)]


def test_a_fenced_replica_is_assigned_but_neither_leads_nor_is_in_the_isr() -> None:
    harness = ControllerHarness()
    harness.lose(3)
    harness.topic("t", [3, 1])
    assert (harness.partition("t").replicas, harness.partition("t").leader, harness.partition("t").isr) == (
        (3, 1),
        1,
        (1,),
    )


MANUAL_FAULTS: list[tuple[dict[str, list[int]], str]] = [
    ({"p0": []}, "The manual partition assignment includes an empty replica list."),
    ({"p0": [9]}, "The manual partition assignment includes broker 9, but no such broker is registered."),
    ({"p0": [1, 2, 1]}, "The manual partition assignment includes the broker 1 more than once."),
    (
        {"p0": [1, 2], "p1": [1]},
        (
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with "
            "previous partitions, which have 2 replica(s)."
        ),
    ),
    ({"p0": [1], "p2": [1]}, "partitions should be a consecutive 0-based integer sequence"),
]


@pytest.mark.parametrize(("replicas", "message"), MANUAL_FAULTS)
def test_a_manual_assignment_that_cannot_be_is_refused(replicas: dict[str, list[int]], message: str) -> None:
    result = ControllerHarness().create("t", assignments=assigned(**replicas))
    assert outcome(result) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def test_a_partition_assigned_twice_is_refused() -> None:
    result = ControllerHarness().create("t", assignments=assigned(p0=[1]) + assigned(p0=[2]))
    message = "Found multiple manual partition assignments for partition 0"
    assert outcome(result) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def test_a_manual_assignment_of_dead_brokers_is_refused() -> None:
    harness = ControllerHarness()
    harness.lose(1, 2)
    message = (
        "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown."
    )
    assert outcome(harness.create("t", assignments=assigned(p0=[1, 2]))) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        message,
    )


def test_a_manual_assignment_excludes_counts() -> None:
    harness = ControllerHarness()
    factor = harness.create("t", -1, 1, assignments=assigned(p0=[1]))
    assert outcome(factor) == (
        ErrorCode.INVALID_REQUEST,
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    )
    count = harness.create("t", 1, -1, assignments=assigned(p0=[1]))
    assert outcome(count) == (
        ErrorCode.INVALID_REQUEST,
        "A manual partition assignment was specified, but numPartitions was not set to -1.",
    )


# --------------------------------------------------------------------------------------------------- CreatePartitions


def grow(
    harness: ControllerHarness, name: str, count: int, *replicas: list[int], validate_only: bool = False
) -> tuple[ErrorCode, str | None]:
    assignments = [partitions_wire.CreatePartitionsAssignment(broker_ids=brokers) for brokers in replicas]
    topic = partitions_wire.CreatePartitionsTopic(name=name, count=count, assignments=assignments or None)
    request = partitions_wire.CreatePartitionsRequest(topics=[topic], validate_only=validate_only)
    (result,) = harness.do(ApiKey.CREATE_PARTITIONS, request).results
    return outcome(result)


def test_partitions_are_added_behind_the_present_ones() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2])
    assert grow(harness, "t", 3) == (ErrorCode.NONE, None)
    topic = harness.image.topic("t")
    assert topic is not None
    assert list(topic.partitions) == [0, 1, 2]
    assert all(len(partition.replicas) == 2 for partition in topic.partitions.values())


def test_added_partitions_may_be_assigned_by_hand() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2])
    assert grow(harness, "t", 2, [3, 1]) == (ErrorCode.NONE, None)
    assert harness.partition("t", 1).replicas == (3, 1)


def test_growth_may_be_tried() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1])
    before = len(harness.log)
    assert grow(harness, "t", 2, validate_only=True) == (ErrorCode.NONE, None)
    assert len(harness.log) == before


def test_growth_that_cannot_be_is_refused() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1, 2], [2, 3])
    unknown = "This server does not host this topic-partition."
    assert grow(harness, "u", 2) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, unknown)
    assert grow(harness, "t", 2) == (ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s).")
    message = "The topic t currently has 2 partition(s); 1 would not be an increase."
    assert grow(harness, "t", 1) == (ErrorCode.INVALID_PARTITIONS, message)
    message = "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."
    assert grow(harness, "t", 4, [1, 2]) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    assert grow(harness, "t", 3, [1])[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(harness, "t", 20_000)[0] == ErrorCode.POLICY_VIOLATION


def test_a_topic_grows_by_what_brokers_can_make_directories_for() -> None:
    """Check a limit without which the brokers of a large cluster ended for good: the name was too long for their file
    systems.
    """
    harness = ControllerHarness(squall_broker_max_replicas="1000000")
    name = "n" * 249
    harness.topic(name, [1])
    topic = harness.image.topics_by_id[harness.image.topic_ids[name]]
    topic.partitions.update(dict.fromkeys(range(99_999), topic.partitions[0]))
    assert grow(harness, name, 100_001)[0] == ErrorCode.INVALID_PARTITIONS
    assert grow(harness, name, 100_000)[0] == ErrorCode.NONE


def test_the_topics_of_a_request_do_not_grow_by_too_many_partitions_together() -> None:
    """To place them took 18 ms for each topic, before the first was refused for its brokers' sake."""
    harness = ControllerHarness(squall_broker_max_replicas="20000")
    harness.topic("t", [1])
    harness.topic("u", [2])
    harness.topic("v", [3])

    def grown(*counts: int) -> list[int]:
        topics = [
            partitions_wire.CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in zip("tuv", counts, strict=True)
        ]
        request = partitions_wire.CreatePartitionsRequest(topics=topics)
        return [each.error_code for each in harness.do(ApiKey.CREATE_PARTITIONS, request).results]

    too_many, none = ErrorCode.POLICY_VIOLATION, ErrorCode.NONE
    assert grown(5001, 5002, 1) == [too_many, too_many, ErrorCode.INVALID_PARTITIONS]
    assert grown(5001, 5001, 1) == [none, none, ErrorCode.INVALID_PARTITIONS]


def test_growth_onto_dead_brokers_is_refused() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1])
    harness.lose(3)
    assert grow(harness, "t", 2, [3])[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_named_twice_does_not_grow() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1])
    topics = [partitions_wire.CreatePartitionsTopic(name="t", count=count, assignments=None) for count in (2, 3)]
    (result,) = harness.do(ApiKey.CREATE_PARTITIONS, partitions_wire.CreatePartitionsRequest(topics=topics)).results
    assert outcome(result) == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


# ------------------------------------------------------------------------------------------------------- DeleteTopics


def delete(
    harness: ControllerHarness, *topics: str | bytes | tuple[str | None, bytes]
) -> list[tuple[ErrorCode, str | None]]:
    states = []
    for topic in topics:
        if isinstance(topic, tuple):
            states.append(delete_wire.DeleteTopicState(name=topic[0], topic_id=topic[1]))
        elif isinstance(topic, str):
            states.append(delete_wire.DeleteTopicState(name=topic))
        else:
            states.append(delete_wire.DeleteTopicState(name=None, topic_id=topic))
    request = delete_wire.DeleteTopicsRequest(topics=states)
    return [outcome(result) for result in harness.do(ApiKey.DELETE_TOPICS, request).responses]


def test_a_topic_is_removed_by_name_and_by_id() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1])
    topic_id = harness.topic("u", [1])
    assert delete(harness, "t", topic_id) == [(ErrorCode.NONE, None)] * 2
    assert harness.image.topic_ids == {}


def test_the_answer_names_the_topic_and_its_id() -> None:
    harness = ControllerHarness()
    topic_id = harness.topic("t", [1])
    request = delete_wire.DeleteTopicsRequest(topics=[delete_wire.DeleteTopicState(name=None, topic_id=topic_id)])
    (result,) = harness.do(ApiKey.DELETE_TOPICS, request).responses
    assert (result.name, result.topic_id) == ("t", topic_id)


def test_old_clients_remove_topics_by_name() -> None:
    harness = ControllerHarness()
    harness.topic("t", [1])
    request = delete_wire.DeleteTopicsRequest(topic_names=["t", "u"])
    results = harness.do(ApiKey.DELETE_TOPICS, request).responses
    assert [result.error_code for result in results] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_unknown_topics_are_not_removed() -> None:
    harness = ControllerHarness()
    errors = [code for code, _ in delete(harness, "t", b"x" * 16)]
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_topic_is_named_once_and_one_way() -> None:
    harness = ControllerHarness()
    topic_id = harness.topic("t", [1])
    refused = ErrorCode.INVALID_REQUEST
    assert delete(harness, "t", "t") == [(refused, "Duplicate topic name.")]
    assert delete(harness, topic_id, topic_id) == [(refused, "Duplicate topic id.")]
    assert delete(harness, ("t", topic_id)) == [(refused, "You may not specify both topic name and topic id.")]
    assert delete(harness, (None, bytes(16))) == [(refused, "Neither topic name nor id were specified.")]
    twice = "The provided topic name maps to an ID that was already supplied."
    assert delete(harness, topic_id, "t") == delete(harness, "t", topic_id) == [(refused, twice)]
    assert "t" in harness.image.topic_ids


def test_removal_may_be_switched_off() -> None:
    harness = ControllerHarness(delete_topic_enable="false")
    harness.topic("t", [1])
    assert delete(harness, "t") == [(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")]
    assert "t" in harness.image.topic_ids


def test_a_topic_made_again_has_another_id() -> None:
    harness = ControllerHarness()
    first = harness.topic("t", [1])
    delete(harness, "t")
    assert harness.topic("t", [1]) != first
