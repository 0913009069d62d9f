"""Assigns partitions as the assignors of a group leader do, and encodes the members' subscriptions and assignments. The
code is pure.

All assignors identify static members by their instance id, so that a member that returns under another member id gets
its old partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from squall.broker.protocol.coordinator_frame import decode_versioned, encode_versioned
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.schema.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from squall.workloads.client.cluster import Place

SUBSCRIPTION_VERSION, ASSIGNMENT_VERSION = 2, 1
"""Are the versions of the consumer protocol in which this client encodes subscriptions and assignments. Subscription
version 2 holds the generation of the owned partitions (KIP-792).
"""


class SubscribedMember(NamedTuple):
    """Describes a member by its decoded subscription, as input for an assignor."""

    member_id: str
    instance: str
    """Holds the member's group.instance.id; empty for a dynamic member."""
    topics: tuple[str, ...]
    owned: tuple[Place, ...] = ()
    """Holds the partitions that the member owned when it joined; an eager member has given up all of them."""
    generation: int = -1
    """Holds the generation in which the member owned its partitions; -1 if the subscription does not name it."""

    @property
    def order(self) -> tuple[int, str]:
        """Return the sort key: static members come first, by their instance id."""
        return (0, self.instance) if self.instance else (1, self.member_id)


Assignment = dict[str, list[Place]]
"""Maps a member id to its partitions."""
Counts = Mapping[str, int]
"""Maps a topic to its number of partitions."""


def by_range(members: Sequence[SubscribedMember], counts: Counts) -> Assignment:
    """Assign consecutive partitions of each topic to its subscribers; the first members get one more if the number does
    not divide evenly.
    """
    found: Assignment = {member.member_id: [] for member in members}
    for topic in sorted(counts):
        takers = [member for member in sorted(members, key=_order) if topic in member.topics]
        if not takers:
            continue
        each, more = divmod(counts[topic], len(takers))
        first = 0
        for number, member in enumerate(takers):
            behind = first + each + (number < more)
            found[member.member_id] += [(topic, index) for index in range(first, behind)]
            first = behind
    return found


def round_robin(members: Sequence[SubscribedMember], counts: Counts) -> Assignment:
    """Assign all partitions of all topics one by one to the members in turn, skipping members that do not subscribe to
    the topic.
    """
    found: Assignment = {member.member_id: [] for member in members}
    takers, turn = sorted(members, key=_order), 0
    for place in _places(counts):
        if not any(place[0] in member.topics for member in takers):
            continue
        while place[0] not in takers[turn % len(takers)].topics:
            turn += 1
        found[takers[turn % len(takers)].member_id].append(place)
        turn += 1
    return found


def cooperative_sticky(members: Sequence[SubscribedMember], counts: Counts) -> Assignment:
    """Return a balanced assignment with as few moves as possible. A partition that moves has no owner for one
    generation: its owner first revokes it and joins again (KIP-429).
    """
    target = sticky(members, counts)
    owners = _owners(members, counts)
    taken = {place: member_id for member_id, places in target.items() for place in places}
    leaving = {place for place, owner in owners.items() if taken.get(place, owner) != owner}
    return {
        member_id: [place for place in places if place not in leaving or owners[place] == member_id]
        for member_id, places in target.items()
    }


def sticky(members: Sequence[SubscribedMember], counts: Counts) -> Assignment:
    """Return the assignment that `cooperative_sticky` converges to."""
    found: Assignment = {member.member_id: [] for member in members}
    takers = {member.member_id: member.topics for member in sorted(members, key=_order)}
    rank = {member_id: number for number, member_id in enumerate(takers)}
    owners = _owners(members, counts)
    for place, owner in owners.items():
        found[owner].append(place)
    for place in _places(counts):
        able = [member_id for member_id, topics in takers.items() if place[0] in topics]
        if place not in owners and able:
            found[min(able, key=lambda one: (len(found[one]), rank[one]))].append(place)
    while (move := _improving(found, takers)) is not None:
        giver, taker, place = move
        found[giver].remove(place)
        found[taker].append(place)
    return {member_id: sorted(places) for member_id, places in found.items()}


def _improving(found: Assignment, takers: Mapping[str, Sequence[str]]) -> tuple[str, str, Place] | None:
    """Return a move (from, to, partition) that makes two members' counts more equal, or None if there is none."""
    by_load = sorted(takers, key=lambda one: len(found[one]))
    for giver in reversed(by_load):
        for taker in by_load:
            # A difference of one is as equal as it can be: such moves would never end.
            if len(found[giver]) < len(found[taker]) + 2:
                break
            movable = [place for place in found[giver] if place[0] in takers[taker]]
            if movable:
                return giver, taker, max(movable)
    return None


def _owners(members: Sequence[SubscribedMember], counts: Counts) -> dict[Place, str]:
    """Return the owner of each partition, by the newest generation that claims it. If two members of one generation
    claim it, it has no owner.
    """
    claims: dict[Place, list[tuple[int, str]]] = {}
    for member in members:
        for place in member.owned:
            if place[0] in member.topics and 0 <= place[1] < counts.get(place[0], 0):
                claims.setdefault(place, []).append((member.generation, member.member_id))
    owners = {}
    for place in sorted(claims):
        newest = max(generation for generation, _ in claims[place])
        claiming = [member_id for generation, member_id in claims[place] if generation == newest]
        if len(claiming) == 1:
            owners[place] = claiming[0]
    return owners


def _order(member: SubscribedMember) -> tuple[int, str]:
    return member.order


def _places(counts: Counts) -> list[Place]:
    return [(topic, index) for topic in sorted(counts) for index in range(counts[topic])]


@dataclass(frozen=True, slots=True)
class Assignor:
    """Describes one assignor. With `cooperative`, members keep their partitions during a rebalance."""

    name: str
    assign: Callable[[Sequence[SubscribedMember], Counts], Assignment]
    cooperative: bool = False


ASSIGNORS = {
    each.name: each
    for each in (
        Assignor("range", by_range),
        Assignor("roundrobin", round_robin),
        Assignor("cooperative-sticky", cooperative_sticky, cooperative=True),
    )
}
"""Maps the names used by all Kafka clients to the assignors."""


# --------------------------------------------------------------------------------------- what members tell each other


def encode_subscription(topics: Sequence[str], owned: Sequence[Place], generation: int) -> bytes:
    """Encode the subscription that a member sends when it joins."""
    parts = [ConsumerProtocolSubscriptionTopicPartition(topic, indexes) for topic, indexes in by_topic(owned).items()]
    said = ConsumerProtocolSubscription(sorted(topics), None, parts, generation)
    return encode_versioned(said, SUBSCRIPTION_VERSION)


def decode_member(member_id: str, instance: str | None, metadata: bytes) -> SubscribedMember:
    """Return a member with its decoded subscription. An undecodable subscription counts as one without topics."""
    try:
        said = decode_versioned(ConsumerProtocolSubscription, metadata)
    except MalformedFrame:
        return SubscribedMember(member_id, instance or "", ())
    owned = tuple((part.topic, index) for part in said.owned_partitions for index in part.partitions)
    return SubscribedMember(member_id, instance or "", tuple(said.topics), owned, said.generation_id)


def encode_assignment(places: Sequence[Place]) -> bytes:
    """Encode the assignment that the group leader sends for a member."""
    parts = [ConsumerProtocolAssignmentTopicPartition(topic, indexes) for topic, indexes in by_topic(places).items()]
    return encode_versioned(ConsumerProtocolAssignment(parts), ASSIGNMENT_VERSION)


def decode_assignment(encoded: bytes) -> list[Place]:
    """Decode the assignment of a member; empty bytes mean no partitions. Raises MalformedFrame."""
    if not encoded:
        return []
    said = decode_versioned(ConsumerProtocolAssignment, encoded)
    return sorted((part.topic, index) for part in said.assigned_partitions for index in part.partitions)


def by_topic(places: Sequence[Place]) -> dict[str, list[int]]:
    """Return the partition indexes by topic, both sorted."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(places):
        found.setdefault(topic, []).append(index)
    return found
