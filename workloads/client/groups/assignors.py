"""Assigns partitions as a group leader's assignors do, and encodes what members send each other. Pure.

All of them treat static members by their instance id, so that one that comes back under another member id gets what it
had.
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
"""Of what is written: the version of a subscription that has its owner's generation (KIP-792)."""


class SubscribedMember(NamedTuple):
    """A member, as its subscription describes it."""

    member_id: str
    instance: str
    """Its group.instance.id; empty for a dynamic member."""
    topics: tuple[str, ...]
    owned: tuple[Place, ...] = ()
    """What it had when it joined; eager members give up everything first."""
    generation: int = -1
    """Of which it had that."""

    @property
    def order(self) -> tuple[int, str]:
        """Static members come first, by their instance id."""
        return (0, self.instance) if self.instance else (1, self.member_id)


Assignment = dict[str, list[Place]]
"""Member id -> its partitions."""
Counts = Mapping[str, int]
"""Topic -> number of its partitions."""


def by_range(members: Sequence[SubscribedMember], counts: Counts) -> Assignment:
    """Topic by topic: each member gets neighbouring partitions, the first ones one more where it does not work out."""
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
    """All partitions of all topics, dealt one by one to whoever comes next and subscribes to the topic."""
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
    """As balanced as can be, with as few moves as that takes. What has to move is nobody's for one generation: its
    owner gives it up first, and joins again (KIP-429).
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
    """Return the assignment that `cooperative_sticky` reaches in the end."""
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
    """A move that makes two loads more alike; None where there is none."""
    by_load = sorted(takers, key=lambda one: len(found[one]))
    for giver in reversed(by_load):
        for taker in by_load:
            if len(found[giver]) < len(found[taker]) + 2:
                break
            movable = [place for place in found[giver] if place[0] in takers[taker]]
            if movable:
                return giver, taker, max(movable)
    return None


def _owners(members: Sequence[SubscribedMember], counts: Counts) -> dict[Place, str]:
    """Return the owner of each partition, by the newest generation that claims it; none if two of one generation claim
    it.
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
    """Describes one assignor. `cooperative`: members keep what they have while a generation begins."""

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
"""By the names that they have among all of Kafka's clients."""


# --------------------------------------------------------------------------------------- what members tell each other


def subscription(topics: Sequence[str], owned: Sequence[Place], generation: int) -> bytes:
    """Encode the subscription that a member sends when it joins."""
    parts = [ConsumerProtocolSubscriptionTopicPartition(topic, indexes) for topic, indexes in by_topic(owned).items()]
    said = ConsumerProtocolSubscription(sorted(topics), None, parts, generation)
    return encode_versioned(said, SUBSCRIPTION_VERSION)


def applicant(member_id: str, instance: str | None, metadata: bytes) -> SubscribedMember:
    """The member that said that. One whose words make no sense subscribes to nothing."""
    try:
        said = decode_versioned(ConsumerProtocolSubscription, metadata)
    except MalformedFrame:
        return SubscribedMember(member_id, instance or "", ())
    owned = tuple((part.topic, index) for part in said.owned_partitions for index in part.partitions)
    return SubscribedMember(member_id, instance or "", tuple(said.topics), owned, said.generation_id)


def assignment(places: Sequence[Place]) -> bytes:
    """Encode the assignment that the leader sends for a member."""
    parts = [ConsumerProtocolAssignmentTopicPartition(topic, indexes) for topic, indexes in by_topic(places).items()]
    return encode_versioned(ConsumerProtocolAssignment(parts), ASSIGNMENT_VERSION)


def assigned(told: bytes) -> list[Place]:
    """Decode the assignment of a member; empty bytes mean no partitions. Raises MalformedFrame."""
    if not told:
        return []
    said = decode_versioned(ConsumerProtocolAssignment, told)
    return sorted((part.topic, index) for part in said.assigned_partitions for index in part.partitions)


def by_topic(places: Sequence[Place]) -> dict[str, list[int]]:
    """Topic -> indexes, in order."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(places):
        found.setdefault(topic, []).append(index)
    return found
