"""Encodes and decodes records of consumer groups in Kafka's format: key types 3 to 8 and 16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall.broker.coordinators.groups.consumer.group import by_topic
from squall.broker.coordinators.groups.consumer.members import (
    ClassicJoinMetadata,
    ConsumerGroupLogRecord,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpochRecord,
    LegacyPartitionMetadataRecord,
    MemberState,
    MemberSubscription,
    Place,
    RegularExpressionRecord,
    ResolvedRegularExpression,
    SubscriptionRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)
from squall.broker.protocol.coordinator_frame import encode_key, encode_versioned
from squall.broker.protocol.schema import group_records as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from squall.broker.protocol.wire import Message

VERSION = 0
"""Is the version of every record value that `encode` writes."""


def encode(written: ConsumerGroupLogRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record; the value is None for a tombstone."""
    key, value = _ENCODERS[type(written)](written)
    return encode_key(key), None if value is None else encode_versioned(value, VERSION)


def _epoch(w: GroupEpochRecord) -> tuple[Message, Message | None]:
    value = None if w.epoch is None else wire.ConsumerGroupMetadataValue(w.epoch, w.metadata_hash)
    return wire.ConsumerGroupMetadataKey(w.group_id), value


def _forgotten(w: LegacyPartitionMetadataRecord) -> tuple[Message, Message | None]:
    return wire.ConsumerGroupPartitionMetadataKey(w.group_id), None


def _target_epoch(w: TargetEpochRecord) -> tuple[Message, Message | None]:
    value = None if w.epoch is None else wire.ConsumerGroupTargetAssignmentMetadataValue(w.epoch, w.at_ms)
    return wire.ConsumerGroupTargetAssignmentMetadataKey(w.group_id), value


def _subscribed(w: SubscriptionRecord) -> tuple[Message, Message | None]:
    key, found = wire.ConsumerGroupMemberMetadataKey(w.group_id, w.member_id), w.subscription
    if found is None:
        return key, None
    classic = None
    if found.classic is not None:
        protocols = [wire.ClassicProtocol(name, metadata) for name, metadata in found.classic.protocols]
        classic = wire.ClassicMemberMetadata(found.classic.session_ms, protocols)
    value = wire.ConsumerGroupMemberMetadataValue(
        instance_id=found.instance_id,
        rack_id=found.rack_id,
        client_id=found.client_id,
        client_host=found.client_host,
        subscribed_topic_names=list(found.topics),
        subscribed_topic_regex=found.regex,
        rebalance_timeout_ms=found.rebalance_ms,
        server_assignor=found.assignor,
        classic_member_metadata=classic,
    )
    return key, value


def _targeted(w: TargetAssignmentRecord) -> tuple[Message, Message | None]:
    key = wire.ConsumerGroupTargetAssignmentMemberKey(w.group_id, w.member_id)
    if w.places is None:
        return key, None
    topics = [wire.TopicPartition(topic_id, indexes) for topic_id, indexes in by_topic(w.places).items()]
    return key, wire.ConsumerGroupTargetAssignmentMemberValue(topics)


def _reached(w: CurrentAssignmentRecord) -> tuple[Message, Message | None]:
    key, found = wire.ConsumerGroupCurrentMemberAssignmentKey(w.group_id, w.member_id), w.current
    if found is None:
        return key, None
    value = wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=found.epoch,
        previous_member_epoch=found.previous_epoch,
        state=int(found.state),
        assigned_partitions=_with_epochs(found.assigned),
        partitions_pending_revocation=_with_epochs(found.revoking),
    )
    return key, value


def _with_epochs(places: Mapping[Place, int]) -> list[wire.TopicPartitions]:
    return [
        wire.TopicPartitions(topic_id, indexes, [places[topic_id, index] for index in indexes])
        for topic_id, indexes in by_topic(places).items()
    ]


def _matched(w: RegularExpressionRecord) -> tuple[Message, Message | None]:
    key, found = wire.ConsumerGroupRegularExpressionKey(w.group_id, w.regex), w.resolved
    if found is None:
        return key, None
    return key, wire.ConsumerGroupRegularExpressionValue(list(found.topics), found.version, found.at_ms)


_ENCODERS: dict[type, Callable[[Any], tuple[Message, Message | None]]] = {
    GroupEpochRecord: _epoch,
    LegacyPartitionMetadataRecord: _forgotten,
    TargetEpochRecord: _target_epoch,
    SubscriptionRecord: _subscribed,
    TargetAssignmentRecord: _targeted,
    CurrentAssignmentRecord: _reached,
    RegularExpressionRecord: _matched,
}


def decode(key: Message, value: Message | None) -> ConsumerGroupLogRecord | None:
    """Return the decoded record of a consumer group, or None for a record of another type. `value` is None for a
    tombstone.
    """
    found = _DECODERS.get(type(key))
    return None if found is None else found(key, value)


def _read_subscription(value: wire.ConsumerGroupMemberMetadataValue) -> MemberSubscription:
    known = value.classic_member_metadata
    classic = None
    if known is not None:
        classic = ClassicJoinMetadata(
            known.session_timeout_ms, tuple((p.name, bytes(p.metadata)) for p in known.supported_protocols)
        )
    return MemberSubscription(
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        tuple(value.subscribed_topic_names),
        value.subscribed_topic_regex or None,
        value.rebalance_timeout_ms,
        value.server_assignor,
        classic,
    )


def _read_current(value: wire.ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    # A later release may have written a state that is unknown here. As Unreleased, the member reconciles from what it
    # has at its next heartbeat. If the record were skipped instead, partitions that the member reads could seem free.
    known = value.state in tuple(MemberState)
    return CurrentAssignment(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state) if known else MemberState.UNRELEASED,
        _read_epochs(value.assigned_partitions, value.member_epoch),
        _read_epochs(value.partitions_pending_revocation, value.member_epoch),
    )


def _read_epochs(topics: list[wire.TopicPartitions], epoch: int) -> dict[Place, int]:
    """Return each partition with the member epoch at which it was assigned. Coordinators before Kafka 4.3 did not write
    these epochs: then use `epoch`, the member epoch, which is the highest possible value.
    """
    found: dict[Place, int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [epoch] * len(topic.partitions)
        found.update({(topic.topic_id, index): since for index, since in zip(topic.partitions, epochs, strict=True)})
    return found


def _read_places(topics: list[wire.TopicPartition]) -> tuple[Place, ...]:
    return tuple((topic.topic_id, index) for topic in topics for index in topic.partitions)


_DECODERS: dict[type, Callable[[Any, Any], ConsumerGroupLogRecord]] = {
    wire.ConsumerGroupMetadataKey: lambda key, value: (
        GroupEpochRecord(key.group_id, value.epoch, value.metadata_hash)
        if value
        else GroupEpochRecord(key.group_id, None)
    ),
    wire.ConsumerGroupPartitionMetadataKey: lambda key, value: LegacyPartitionMetadataRecord(key.group_id),
    wire.ConsumerGroupTargetAssignmentMetadataKey: lambda key, value: (
        TargetEpochRecord(key.group_id, value.assignment_epoch, value.assignment_timestamp)
        if value
        else TargetEpochRecord(key.group_id, None)
    ),
    wire.ConsumerGroupMemberMetadataKey: lambda key, value: SubscriptionRecord(
        key.group_id, key.member_id, value and _read_subscription(value)
    ),
    wire.ConsumerGroupTargetAssignmentMemberKey: lambda key, value: TargetAssignmentRecord(
        key.group_id, key.member_id, value and _read_places(value.topic_partitions)
    ),
    wire.ConsumerGroupCurrentMemberAssignmentKey: lambda key, value: CurrentAssignmentRecord(
        key.group_id, key.member_id, value and _read_current(value)
    ),
    wire.ConsumerGroupRegularExpressionKey: lambda key, value: RegularExpressionRecord(
        key.group_id,
        key.regular_expression,
        value and ResolvedRegularExpression(tuple(value.topics), value.version, value.timestamp),
    ),
}
