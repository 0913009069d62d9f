"""Decodes and encodes the subscriptions and assignments that classic members embed in JoinGroup and SyncGroup (Kafka's
consumer protocol), for use in a consumer group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from squall.broker.coordinators.groups.consumer.group import by_topic
from squall.broker.protocol.coordinator_frame import decode_versioned, encode_versioned
from squall.broker.protocol.schema.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

if TYPE_CHECKING:
    from squall.broker.coordinators.groups.consumer.members import Place
    from squall.broker.coordinators.groups.consumer.topics import TopicLookup


class EmbeddedSubscription(NamedTuple):
    """Holds the decoded subscription that a classic member sends when it joins."""

    topics: tuple[str, ...]
    owned: tuple[Place, ...]
    """Holds the partitions that the member keeps while it joins. An eager member has given up all partitions."""
    rack_id: str | None


def decode_subscription(subscription: bytes, topics: TopicLookup) -> EmbeddedSubscription:
    """Decode the subscription of a classic member, without partitions of unknown topics. Raises MalformedFrame."""
    said = decode_versioned(ConsumerProtocolSubscription, subscription)
    owned = [
        (known[0], index)
        for each in said.owned_partitions
        if (known := topics.find(each.topic)) is not None
        for index in each.partitions
    ]
    return EmbeddedSubscription(tuple(sorted(dict.fromkeys(said.topics))), tuple(owned), said.rack_id)


def decode_assignment(assignment: bytes, topics: TopicLookup) -> tuple[Place, ...]:
    """Return the partitions that a group leader assigned to a member; empty if there is no assignment yet. Raises
    MalformedFrame.
    """
    if not assignment:
        return ()
    said = decode_versioned(ConsumerProtocolAssignment, assignment)
    return tuple(
        (known[0], index)
        for each in said.assigned_partitions
        if (known := topics.find(each.topic)) is not None
        for index in each.partitions
    )


def encode_assignment(places: tuple[Place, ...], subscription: bytes, topics: TopicLookup) -> bytes:
    """Encode these partitions as a group leader would, in the version of the member's subscription."""
    named = [
        ConsumerProtocolAssignmentTopicPartition(name, indexes)
        for topic_id, indexes in by_topic(places).items()
        if (name := topics.name_of(topic_id)) is not None
    ]
    # A subscription begins with its version, and its member can read an assignment of that version.
    version = int.from_bytes(subscription[:2], "big", signed=True)
    newest = ConsumerProtocolAssignment.MAX_VERSION
    return encode_versioned(ConsumerProtocolAssignment(named), max(0, min(version, newest)))
