"""Implements the server-side assignors (KIP-848), which decide which member gets which partition. They are pure: the
same input always gives the same assignment.

| name | assignment |
|---|---|
| uniform | as even as the subscriptions permit; each member keeps its partitions as far as possible |
| range | for each topic, consecutive partitions for each subscriber, ordered by instance id and member id |
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.consumer.members import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from squall.broker.coordinators.groups.consumer.members import MemberSubscription


@dataclass(frozen=True, slots=True)
class AssignmentMemberSpec:
    """Describes a member to an assignor: its subscribed topics and its present target assignment."""

    member_id: str
    instance_id: str | None
    topics: tuple[bytes, ...]
    """Holds the ids of the existing topics that the member subscribes to."""
    has: tuple[Place, ...] = ()
    """Holds the member's present target assignment, which the assignor's result replaces."""


Targets = dict[str, tuple[Place, ...]]


def uniform(members: tuple[AssignmentMemberSpec, ...], partitions: Mapping[bytes, int]) -> Targets:
    """Assign every partition of a subscribed topic to one member, as evenly as possible. `partitions` maps a topic id
    to its number of partitions.

    If all members subscribe to the same topics, their partition counts differ by one at most. Only partitions that have
    to move are moved.
    """
    # By id, so that the result does not depend on the order in which members joined.
    order = sorted(members, key=lambda m: m.member_id)
    held: dict[str, list[Place]] = {}
    taken: dict[Place, str] = {}
    for one in order:
        wanted = dict.fromkeys(one.topics)
        held[one.member_id] = kept = []
        for place in one.has:
            topic_id, index = place
            # A classic leader may have assigned unknown partitions, or one partition to two members.
            if topic_id in wanted and 0 <= index < partitions[topic_id] and place not in taken:
                taken[place] = one.member_id
                kept.append(place)
    readers = _readers(order)
    for topic_id, names in readers.items():
        free = [(topic_id, index) for index in range(partitions[topic_id]) if (topic_id, index) not in taken]
        if not free:
            continue
        # Equal counts are ordered by member id: the assignment must not depend on the order in which members joined.
        sizes = [(len(held[name]), at) for at, name in enumerate(names)]
        heapify(sizes)
        for place in free:
            size, at = sizes[0]
            held[names[at]].append(place)
            heapreplace(sizes, (size + 1, at))
    _balance(held, readers)
    if len({frozenset(one.topics) for one in order}) == 1:
        sizes_of_all = [len(places) for places in held.values()]
        assert max(sizes_of_all) <= min(sizes_of_all) + 1
    return _checked(held, members, partitions)


def _checked(
    held: Mapping[str, list[Place]], members: tuple[AssignmentMemberSpec, ...], partitions: Mapping[bytes, int]
) -> Targets:
    """Assert the invariants of every assignor, and return the sorted partitions of each member. `held` maps a member id
    to its partitions. Each partition of a subscribed topic must have exactly one owner, which subscribes to the topic.
    """
    topics = {one.member_id: frozenset(one.topics) for one in members}
    given = [place for places in held.values() for place in places]
    assert held.keys() == topics.keys()
    assert len(set(given)) == len(given)
    assert len(given) == sum(partitions[topic_id] for topic_id in frozenset[bytes]().union(*topics.values()))
    assert all(0 <= index < partitions[topic_id] for topic_id, index in given)
    assert all(topic_id in topics[name] for name, places in held.items() for topic_id, _ in places)
    return {name: tuple(sorted(places)) for name, places in held.items()}


def _readers(order: list[AssignmentMemberSpec]) -> dict[bytes, list[str]]:
    found: dict[bytes, list[str]] = {}
    for one in order:
        for topic_id in dict.fromkeys(one.topics):
            found.setdefault(topic_id, []).append(one.member_id)
    return dict(sorted(found.items()))


def _balance(held: dict[str, list[Place]], readers: dict[bytes, list[str]]) -> None:
    """Even out the assignment `held`, which maps a member id to its partitions. As long as a member has at least two
    partitions more than another subscriber of one of its topics, move a partition of that topic to the other. `readers`
    maps a topic id to its subscribers.

    Each move makes the sum of the squared counts smaller, so the loop ends. Moves along a chain of members, which could
    even out rare mixes of subscriptions further, are not tried.
    """
    while True:
        move = _next_move(held, readers)
        if move is None:
            return
        place, giver, taker = move
        assert len(held[taker]) + 1 < len(held[giver])
        held[giver].remove(place)
        held[taker].append(place)
        assert len(held[taker]) <= len(held[giver])


def _next_move(held: dict[str, list[Place]], readers: dict[bytes, list[str]]) -> tuple[Place, str, str] | None:
    smallest = min(map(len, held.values()), default=0)
    least: dict[bytes, str] = {}
    for giver in sorted(held, key=lambda name: (-len(held[name]), name)):
        if len(held[giver]) <= smallest + 1:
            return None  # no remaining member has two more than the smallest
        for place in reversed(held[giver]):  # the partition that was added last moves first
            topic_id = place[0]
            if topic_id not in least:
                least[topic_id] = min(readers[topic_id], key=lambda name: (len(held[name]), name))
            taker = least[topic_id]
            if len(held[taker]) + 1 < len(held[giver]):
                return place, giver, taker
    return None


def range_(members: tuple[AssignmentMemberSpec, ...], partitions: Mapping[bytes, int]) -> Targets:
    """Assign consecutive partitions of each topic to its subscribers; the first members get one more if the number does
    not divide evenly. `partitions` maps a topic id to its number of partitions.
    """
    # Static members come first, by their instance ids, which a restart does not change.
    order = sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or m.member_id))
    given: dict[str, list[Place]] = {one.member_id: [] for one in order}
    for topic_id, names in _readers(order).items():
        share, more = divmod(partitions[topic_id], len(names))
        first = 0
        for n, name in enumerate(names):
            end = first + share + (n < more)
            given[name] += [(topic_id, index) for index in range(first, end)]
            first = end
        assert first == partitions[topic_id]
    return _checked(given, members, partitions)


def elected_assignor(members: Iterable[MemberSubscription], known: tuple[str, ...]) -> str:
    """Return the assignor that most members ask for, or the first of `known` if no member asks for one."""
    assert known
    votes = dict.fromkeys(known, 0)
    for subscription in members:
        if subscription.assignor in votes:
            votes[subscription.assignor] += 1
    assert len(votes) == len(known)
    return max(known, key=lambda name: votes[name])


ASSIGNORS: dict[str, Callable[[tuple[AssignmentMemberSpec, ...], Mapping[bytes, int]], Targets]] = {
    "uniform": uniform,
    "range": range_,
}
