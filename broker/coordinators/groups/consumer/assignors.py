"""Server-side assignors (KIP-848): who is to have which partition. Pure, and the same for the same question.

| name | what it gives |
|---|---|
| uniform | as even as the subscriptions permit; each member keeps what it has, as far as that goes |
| range | of each topic a run of partitions for each subscriber, in the order of instance ids and member ids |
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

from squall.broker.coordinators.groups.consumer.members import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class AssignmentMemberSpec:
    """A member, as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: tuple[bytes, ...]
    """Ids of the topics that it subscribes to and that exist."""
    has: tuple[Place, ...] = ()
    """Its last target."""


Targets = dict[str, tuple[Place, ...]]


def uniform(members: tuple[AssignmentMemberSpec, ...], partitions: Mapping[bytes, int]) -> Targets:
    """`partitions`: topic id to how many it has. Every partition of a subscribed topic has one owner.

    With the same subscriptions for all, the sizes differ by one at most. No partition moves that need not.
    """
    order = sorted(members, key=lambda m: m.member_id)
    held: dict[str, list[Place]] = {}
    taken: dict[Place, str] = {}
    for one in order:
        wanted = dict.fromkeys(one.topics)
        held[one.member_id] = kept = []
        for place in one.has:
            topic_id, index = place
            # Classic leaders may have given what there is not, or one partition to two members.
            if topic_id in wanted and 0 <= index < partitions[topic_id] and place not in taken:
                taken[place] = one.member_id
                kept.append(place)
    readers = _readers(order)
    for topic_id, names in readers.items():
        free = [(topic_id, index) for index in range(partitions[topic_id]) if (topic_id, index) not in taken]
        if not free:
            continue
        sizes = [(len(held[name]), at) for at, name in enumerate(names)]
        heapify(sizes)
        for place in free:
            size, at = sizes[0]
            held[names[at]].append(place)
            heapreplace(sizes, (size + 1, at))
    _balance(held, readers)
    assert sum(map(len, held.values())) == sum(partitions[topic_id] for topic_id in readers)
    return {name: tuple(sorted(places)) for name, places in held.items()}


def _readers(order: list[AssignmentMemberSpec]) -> dict[bytes, list[str]]:
    found: dict[bytes, list[str]] = {}
    for one in order:
        for topic_id in dict.fromkeys(one.topics):
            found.setdefault(topic_id, []).append(one.member_id)
    return dict(sorted(found.items()))


def _balance(held: dict[str, list[Place]], readers: dict[bytes, list[str]]) -> None:
    """Move single partitions from members that have two more than another reader of that topic, until there are none.

    Each move makes the sum of the squares of the sizes smaller, so this ends. A step along a chain of members, which
    would even out rare mixes of subscriptions further, is not looked for.
    """
    while True:
        move = _next_move(held, readers)
        if move is None:
            return
        place, giver, taker = move
        held[giver].remove(place)
        held[taker].append(place)


def _next_move(held: dict[str, list[Place]], readers: dict[bytes, list[str]]) -> tuple[Place, str, str] | None:
    smallest = min(map(len, held.values()), default=0)
    least: dict[bytes, str] = {}
    for giver in sorted(held, key=lambda name: (-len(held[name]), name)):
        if len(held[giver]) <= smallest + 1:
            return None  # neither this one nor those after it have two more than anybody
        for place in reversed(held[giver]):  # what came last goes first
            topic_id = place[0]
            if topic_id not in least:
                least[topic_id] = min(readers[topic_id], key=lambda name: (len(held[name]), name))
            taker = least[topic_id]
            if len(held[taker]) + 1 < len(held[giver]):
                return place, giver, taker
    return None


def range_(members: tuple[AssignmentMemberSpec, ...], partitions: Mapping[bytes, int]) -> Targets:
    """`partitions`: topic id to how many it has. The first members get one more where it does not come out even."""
    # Static members first: their order is that of their instance ids, which a restart does not change.
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
    return {name: tuple(sorted(places)) for name, places in given.items()}


ASSIGNORS: dict[str, Callable[[tuple[AssignmentMemberSpec, ...], Mapping[bytes, int]], Targets]] = {
    "uniform": uniform,
    "range": range_,
}
