"""Decides the responses to CreateTopics, CreatePartitions and DeleteTopics, and the metadata records that they write
(mechanism C1 in docs/mechanisms.md).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from squall.broker.cluster.image import TOPIC_RESOURCE
from squall.broker.cluster.names import MAX_DIRECTORY_LENGTH, METADATA_TOPIC, name_fault
from squall.broker.cluster.replay import PARTITION_VERSION, MetadataRecord
from squall.broker.cluster.settings import layers_of
from squall.broker.config import (
    TOPIC_SETTINGS,
    ConfigError,
    ConfigSource,
    describe_topic,
    source_of,
    validate_topic_configs,
)
from squall.broker.controller.configs import MOST_CHARACTERS, long_characters, too_many_characters
from squall.broker.controller.decision import Decision, Refusal, duplicates
from squall.broker.controller.placement import check_manual, live_replicas, place
from squall.broker.controller.replica_count_limit import ReplicaCountLimit
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import create_partitions as partitions_wire
from squall.broker.protocol.schema import create_topics as create_wire
from squall.broker.protocol.schema import delete_topics as delete_wire
from squall.broker.protocol.schema.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from squall.broker.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from squall.broker.cluster.image import ClusterImage, Topic
    from squall.broker.controller.decision import Command

MAX_PARTITIONS_PER_REQUEST = 10_000
USE_DEFAULT = -1
"""Asks for the default if a request has it as a topic's number of partitions or replication factor."""


# ---------------------------------------------------------------------------------------------------- CreateTopics


def create_topics(
    command: Command, request: create_wire.CreateTopicsRequest
) -> Decision[create_wire.CreateTopicsResponse]:
    """Create topics; each succeeds or fails by itself, and has a result in the response. If the request asks for more
    than MAX_PARTITIONS_PER_REQUEST partitions in total, no topic is created. With `validate_only` no record is written.
    Never raises.
    """
    twice = duplicates([topic.name for topic in request.topics])
    default = command.settings.config.num_partitions
    too_many = sum(_partitions_asked(topic, default) for topic in request.topics) > MAX_PARTITIONS_PER_REQUEST
    values = (config.value for topic in request.topics for config in topic.configs)
    too_long = len(request.topics) > 1 and long_characters(values) > MOST_CHARACTERS
    shared = _TopicCreationState(command)
    writes: list[MetadataRecord] = []
    results: dict[str, create_wire.CreatableTopicResult] = {}
    for topic in request.topics:
        try:
            if topic.name in twice:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if too_many:
                message = "Excessively large number of partitions per request."
                raise Refusal(ErrorCode.POLICY_VIOLATION, message)
            if too_long:
                raise too_many_characters()
            results[topic.name], records = _create_topic(command, topic, shared)
            writes += records
        except Refusal as refused:
            results[topic.name] = create_wire.CreatableTopicResult(
                name=topic.name, error_code=refused.code, error_message=refused.message
            )
    reply = create_wire.CreateTopicsResponse(topics=list(results.values()))
    return Decision(reply, () if request.validate_only else tuple(writes))


def _partitions_asked(topic: create_wire.CreatableTopic, default: int) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return default if topic.num_partitions == USE_DEFAULT else max(topic.num_partitions, 0)


class _TopicCreationState:
    """Holds what the topics of one request share. It is computed once, because there may be thousands of topics."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self.limit = ReplicaCountLimit(command.image, command.settings.config)
        self.names = ExistingTopicNames(command.image)
        self._layers = layers_of(command.image, command.settings.config)
        self._checked: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        self._default_configs: list[create_wire.CreatableTopicConfigs] | None = None
        """Lists all settings of a topic without overrides; computed when first needed."""
        self._entries_left = command.settings.config.squall_request_max_elements

    def overrides(self, topic: create_wire.CreatableTopic) -> dict[str, str]:
        """Return the settings that a topic of the request overrides. Raises Refusal (INVALID_CONFIG) if a setting is
        invalid or null.
        """
        nulls = [config.name for config in topic.configs if config.value is None]
        if nulls:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
        given = {config.name: config.value or "" for config in topic.configs}
        key = tuple(given.items())
        if key not in self._checked:
            try:
                in_force = self._command.settings.in_force(self._command.image)
                self._checked[key] = validate_topic_configs(in_force, given)
            except ConfigError as error:
                raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
        return self._checked[key]

    def add_configs(self, result: create_wire.CreatableTopicResult, overrides: dict[str, str]) -> None:
        """Add a new topic's settings to its result. One response holds at most `squall.request.max.elements` settings.
        Further topics are created all the same, but their results have an error in place of the settings.
        """
        if self._default_configs is None:
            config = self._command.settings.in_force(self._command.image)
            self._default_configs = [
                create_wire.CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=source_of(entry.name, {}, self._layers),
                )
                for entry in describe_topic(config, {})
            ]
        self._entries_left -= len(self._default_configs)
        if self._entries_left < 0:
            result.configs, result.topic_config_error_code = None, int(ErrorCode.INVALID_REQUEST)
        elif not overrides:
            result.configs = self._default_configs
        else:
            result.configs = [_overridden(entry, overrides) for entry in self._default_configs]


def _overridden(
    entry: create_wire.CreatableTopicConfigs, overrides: Mapping[str, str]
) -> create_wire.CreatableTopicConfigs:
    if entry.name not in overrides:
        return entry
    setting = TOPIC_SETTINGS[entry.name]
    return create_wire.CreatableTopicConfigs(
        name=entry.name,
        value=setting.render(setting.parse(overrides[entry.name])),
        read_only=entry.read_only,
        config_source=ConfigSource.TOPIC,
    )


def _create_topic(
    command: Command, topic: create_wire.CreatableTopic, shared: _TopicCreationState
) -> tuple[create_wire.CreatableTopicResult, list[MetadataRecord]]:
    shared.names.check(topic.name)
    overrides = shared.overrides(topic)
    placements = _placements(command, topic)
    assert placements
    shared.limit.take(placements)
    topic_id = new_topic_id(command)
    writes = [MetadataRecord(TopicRecord(name=topic.name, topic_id=topic_id), 0)]
    writes += [
        MetadataRecord(ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value), 0)
        for name, value in overrides.items()
    ]
    writes += _partition_records(command.image, topic_id, 0, placements)
    result = create_wire.CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(placements),
        replication_factor=len(placements[0]),
    )
    shared.add_configs(result, overrides)
    return result, writes


class ExistingTopicNames:
    """Checks names of new topics against existing ones. Two names that differ only in dots and underscores collide,
    because they would share the names of metrics.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._unified: dict[str, str] | None = None
        """Maps each existing name, with underscores in place of its dots, to the name itself: {"a_b": "a.b"}. It is
        computed when first needed.
        """

    def check(self, name: str) -> None:
        """Raise Refusal for a name that is invalid, exists, or collides with an existing one ("a.b" with "a_b")."""
        fault = name_fault(name)
        if fault is not None:
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {fault}")
        if name == METADATA_TOPIC:
            # Kafka's controllers treat this name as one that the client may not create.
            raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        if name in self._image.topic_ids:
            raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if "." in name or "_" in name:
            if self._unified is None:
                self._unified = {other.replace(".", "_"): other for other in reversed(self._image.topic_ids)}
            other = self._unified.get(name.replace(".", "_"))
            if other is not None:
                message = f"Topic '{name}' collides with existing topic: {other}"
                raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _placements(command: Command, topic: create_wire.CreatableTopic) -> list[tuple[int, ...]]:
    if topic.assignments:
        return _manual_placements(command.image, topic)
    if topic.replication_factor < USE_DEFAULT or topic.replication_factor == 0:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    if topic.num_partitions < USE_DEFAULT or topic.num_partitions == 0:
        message = "Number of partitions was set to an invalid non-positive value."
        raise Refusal(ErrorCode.INVALID_PARTITIONS, message)
    config = command.settings.config
    count = config.num_partitions if topic.num_partitions == USE_DEFAULT else topic.num_partitions
    factor = config.default_replication_factor if topic.replication_factor == USE_DEFAULT else topic.replication_factor
    return place(command, count, factor)


def _manual_placements(image: ClusterImage, topic: create_wire.CreatableTopic) -> list[tuple[int, ...]]:
    if topic.replication_factor != USE_DEFAULT:
        message = "A manual partition assignment was specified, but replication factor was not set to -1."
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    if topic.num_partitions != USE_DEFAULT:
        message = "A manual partition assignment was specified, but numPartitions was not set to -1."
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    placements: dict[int, tuple[int, ...]] = {}
    factor = None
    for assignment in topic.assignments:
        index, replicas = assignment.partition_index, tuple(assignment.broker_ids)
        if index in placements:
            message = f"Found multiple manual partition assignments for partition {index}"
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        check_manual(image, replicas, factor)
        _check_live(image, index, replicas)
        factor = len(replicas)
        placements[index] = replicas
    if sorted(placements) != list(range(len(placements))):
        message = "partitions should be a consecutive 0-based integer sequence"
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    assert placements
    return [placements[index] for index in range(len(placements))]


def _check_live(image: ClusterImage, index: int, replicas: Sequence[int]) -> None:
    if not live_replicas(image, tuple(replicas)):
        message = (
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown."
        )
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _partition_records(
    image: ClusterImage, topic_id: bytes, first_index: int, placements: list[tuple[int, ...]]
) -> list[MetadataRecord]:
    writes = []
    for index, replicas in enumerate(placements, first_index):
        isr = live_replicas(image, replicas)
        assert isr, f"partition {index} would begin without a leader"
        record = PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=list(isr),
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
        )
        writes.append(MetadataRecord(record, PARTITION_VERSION))
    return writes


def new_topic_id(command: Command) -> bytes:
    """Return a random (version 4) UUID that is neither reserved nor in use."""
    while True:
        raw = bytearray(command.rng.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        # A version 4 UUID is none of Kafka's reserved ids (zero, and one for the metadata topic).
        if bytes(raw) not in command.image.topics_by_id:
            return bytes(raw)


# ------------------------------------------------------------------------------------------------ CreatePartitions


def create_partitions(
    command: Command, request: partitions_wire.CreatePartitionsRequest
) -> Decision[partitions_wire.CreatePartitionsResponse]:
    """Add partitions to topics; each topic succeeds or fails by itself. If the request would add more than
    MAX_PARTITIONS_PER_REQUEST partitions in total, no topic gets any.
    """
    twice = duplicates([topic.name for topic in request.topics])
    added = sum(_partitions_added(command.image, topic) for topic in request.topics)
    limit = ReplicaCountLimit(command.image, command.settings.config)
    writes: list[MetadataRecord] = []
    results: dict[str, partitions_wire.CreatePartitionsTopicResult] = {}
    for topic in request.topics:
        result = partitions_wire.CreatePartitionsTopicResult(name=topic.name, error_message=None)
        try:
            if topic.name in twice:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            writes += _more_partitions(command, topic, limit, too_many=added > MAX_PARTITIONS_PER_REQUEST)
        except Refusal as refused:
            result.error_code, result.error_message = refused.code, refused.message
        results[topic.name] = result
    reply = partitions_wire.CreatePartitionsResponse(results=list(results.values()))
    return Decision(reply, () if request.validate_only else tuple(writes))


def _partitions_added(image: ClusterImage, asked: partitions_wire.CreatePartitionsTopic) -> int:
    topic = image.topic(asked.name)
    return 0 if topic is None else max(asked.count - len(topic.partitions), 0)


def _more_partitions(
    command: Command, asked: partitions_wire.CreatePartitionsTopic, limit: ReplicaCountLimit, *, too_many: bool
) -> list[MetadataRecord]:
    image = command.image
    topic = image.topic(asked.name)
    if topic is None:
        raise _unknown_topic()
    present = len(topic.partitions)
    if asked.count == present:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if asked.count < present:
        message = (
            f"The topic {asked.name} currently has {present} partition(s); {asked.count} would not be an increase."
        )
        raise Refusal(ErrorCode.INVALID_PARTITIONS, message)
    if too_many:
        raise Refusal(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    if len(f"{asked.name}-{asked.count - 1}") > MAX_DIRECTORY_LENGTH:  # no broker could make its directory
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"A topic of so long a name cannot have {asked.count} partitions.")
    placements = _added_placements(command, asked, topic)
    assert len(placements) == asked.count - present
    limit.take(placements)
    return _partition_records(image, topic.id, present, placements)


def _added_placements(
    command: Command, asked: partitions_wire.CreatePartitionsTopic, topic: Topic
) -> list[tuple[int, ...]]:
    present = len(topic.partitions)
    additional = asked.count - present
    assert additional > 0
    # Reassignments may have changed the factor of some partitions. Partition 0 decides for new ones.
    factor = len(topic.partitions[0].replicas)
    if asked.assignments is None:
        return place(command, additional, factor)
    if len(asked.assignments) != additional:
        message = (
            f"Attempted to add {additional} additional partition(s), but only {len(asked.assignments)} assignment(s) "
            "were specified."
        )
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    placements = [tuple(assignment.broker_ids) for assignment in asked.assignments]
    for index, replicas in enumerate(placements, present):
        check_manual(command.image, replicas, factor)
        _check_live(command.image, index, replicas)
    return placements


# ---------------------------------------------------------------------------------------------------- DeleteTopics


def delete_topics(
    command: Command, request: delete_wire.DeleteTopicsRequest
) -> Decision[delete_wire.DeleteTopicsResponse]:
    """Delete topics by name (`topic_names`, version 5 and below) or by name or id (`topics`). Each topic succeeds or
    fails by itself.

    A topic that the request names twice is refused, even if it is named once by name and once by id. As with Kafka, the
    response then has one result for it (KIP-516).
    """
    asked = Counter[tuple[str | None, bytes]]((name, ZERO_UUID) for name in request.topic_names)
    asked.update((topic.name, topic.topic_id) for topic in request.topics)
    results: list[delete_wire.DeletableTopicResult] = []
    writes: list[MetadataRecord] = []
    for (name, topic_id), times in asked.items():
        result = delete_wire.DeletableTopicResult(name=name, topic_id=topic_id, error_message=None)
        # As with Kafka, a malformed entry has a row for each mention, and a topic one in all.
        rows = times
        try:
            _check_delete(command, name, topic_id)
            rows = 1
            if times > 1:
                message = "Duplicate topic id." if name is None else "Duplicate topic name."
                raise Refusal(ErrorCode.INVALID_REQUEST, message)
            topic = _find(command.image, name, topic_id)
            if name is None and asked[topic.name, ZERO_UUID] == 1:
                continue  # The request names the topic both ways: the row of its name refuses it.
            result.name, result.topic_id = topic.name, topic.id
            if name is not None and asked[None, topic.id]:
                message = "The provided topic name maps to an ID that was already supplied."
                raise Refusal(ErrorCode.INVALID_REQUEST, message)
            writes.append(MetadataRecord(RemoveTopicRecord(topic_id=topic.id), 0))
        except Refusal as refused:
            result.error_code, result.error_message = refused.code, refused.message
        results += [result] * rows
    assert len({write.record.topic_id for write in writes}) == len(writes)
    return Decision(delete_wire.DeleteTopicsResponse(responses=results), tuple(writes))


def _check_delete(command: Command, name: str | None, topic_id: bytes) -> None:
    if not command.settings.config.delete_topic_enable:
        raise Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    if name is not None and topic_id != ZERO_UUID:
        raise Refusal(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id == ZERO_UUID:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")


def _find(image: ClusterImage, name: str | None, topic_id: bytes) -> Topic:
    if name is None:
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        return topic
    topic = image.topic(name)
    if topic is None:
        raise _unknown_topic()
    return topic


def _unknown_topic() -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
