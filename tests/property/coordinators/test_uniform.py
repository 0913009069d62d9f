"""The assignor `uniform` agrees with a simple implementation of the same rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from squall.broker.coordinators.groups.consumer.assignors import AssignmentMemberSpec, Targets, uniform
from squall.broker.coordinators.groups.consumer.members import Place

TOPICS = (b"a", b"b", b"c")


def plainly(members: tuple[AssignmentMemberSpec, ...], partitions: dict[bytes, int]) -> Targets:
    """Return the assignment, with every choice made by comparing all members."""
    held: dict[str, list[Place]] = {one.member_id: [] for one in sorted(members, key=lambda m: m.member_id)}
    topics = {one.member_id: set(one.topics) for one in members}
    taken = set()
    for one in sorted(members, key=lambda m: m.member_id):
        for place in one.has:
            if place[0] in one.topics and place[1] in range(partitions[place[0]]) and place not in taken:
                taken.add(place)
                held[one.member_id].append(place)
    for topic_id in sorted(partitions):
        names = [name for name in held if topic_id in topics[name]]
        for index in range(partitions[topic_id]):
            if names and (topic_id, index) not in taken:
                held[min(names, key=lambda name: len(held[name]))].append((topic_id, index))
    while (move := plain_move(held, topics)) is not None:
        place, giver, taker = move
        held[giver].remove(place)
        held[taker].append(place)
    return {name: tuple(sorted(places)) for name, places in held.items()}


def plain_move(held: dict[str, list[Place]], topics: dict[str, set[bytes]]) -> tuple[Place, str, str] | None:
    for giver in sorted(held, key=lambda name: (-len(held[name]), name)):
        for place in reversed(held[giver]):
            readers = [name for name in held if place[0] in topics[name]]
            taker = min(readers, key=lambda name: (len(held[name]), name))
            if len(held[taker]) + 1 < len(held[giver]):
                return place, giver, taker
    return None


places = st.tuples(st.sampled_from(TOPICS), st.integers(-1, 9))
"""Partitions that a member may own, also some that do not exist: the last leader of a classic group may have assigned
such.
"""
wants = st.tuples(st.lists(st.sampled_from(TOPICS), unique=True), st.lists(places, unique=True, max_size=12))


@given(st.lists(wants, max_size=6), st.tuples(*[st.integers(0, 8)] * 3))
def test_uniform_chooses_as_if_it_looked_at_everybody_each_time(
    given_wants: list[tuple[list[bytes], list[Place]]], counts: tuple[int, int, int]
) -> None:
    members = tuple(
        AssignmentMemberSpec(f"m{n}", None, tuple(topics), tuple(has)) for n, (topics, has) in enumerate(given_wants)
    )
    partitions = dict(zip(TOPICS, counts, strict=True))
    assert uniform(members, partitions) == plainly(members, partitions)
