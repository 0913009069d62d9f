"""Kafka's consumer protocol, which classic members embed in their Joins and Syncs, in the words of a consumer group."""

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
    """Holds what a classic member says when it joins."""

    topics: tuple[str, ...]
    owned: tuple[Place, ...]
    """What it keeps while it joins. An eager member has given everything up."""
    rack_id: str | None


def wanted(subscription: bytes, topics: TopicLookup) -> EmbeddedSubscription:
    """Raises MalformedFrame. Partitions of topics that do not exist are left out."""
    said = decode_versioned(ConsumerProtocolSubscription, subscription)
    owned = [
        (known[0], index)
        for each in said.owned_partitions
        if (known := topics.find(each.topic)) is not None
        for index in each.partitions
    ]
    return EmbeddedSubscription(tuple(sorted(dict.fromkeys(said.topics))), tuple(owned), said.rack_id)


def assigned(assignment: bytes, topics: TopicLookup) -> tuple[Place, ...]:
    """Return what a leader assigned to a member; nothing if there is no assignment yet. Raises MalformedFrame."""
    if not assignment:
        return ()
    said = decode_versioned(ConsumerProtocolAssignment, assignment)
    return tuple(
        (known[0], index)
        for each in said.assigned_partitions
        if (known := topics.find(each.topic)) is not None
        for index in each.partitions
    )


def assignment(places: tuple[Place, ...], subscription: bytes, topics: TopicLookup) -> bytes:
    """These partitions as a leader would have given them to the member of this subscription, in its version."""
    named = [
        ConsumerProtocolAssignmentTopicPartition(name, indexes)
        for topic_id, indexes in by_topic(places).items()
        if (name := topics.name_of(topic_id)) is not None
    ]
    version = int.from_bytes(subscription[:2], "big", signed=True)
    newest = ConsumerProtocolAssignment.MAX_VERSION
    return encode_versioned(ConsumerProtocolAssignment(named), max(0, min(version, newest)))
