"""Checks which member gets which partitions: each assignor's own promise, and what all of them promise."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall.workloads.client.groups.assignors import (
    ASSIGNORS,
    Assignment,
    SubscribedMember,
    by_range,
    cooperative_sticky,
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
    round_robin,
    sticky,
)

T, U = "t", "u"


def member(name: str, *topics: str, owned: tuple[tuple[str, int], ...] = (), generation: int = 1) -> SubscribedMember:
    return SubscribedMember(name, "", topics or (T,), owned, generation)


def test_range_gives_neighbours_topic_by_topic_and_the_first_ones_one_more() -> None:
    found = by_range([member("b", T, U), member("a", T, U)], {T: 3, U: 1})
    assert found == {"a": [(T, 0), (T, 1), (U, 0)], "b": [(T, 2)]}


def test_round_robin_deals_all_topics_in_one_go() -> None:
    found = round_robin([member("a", T, U), member("b", T, U)], {T: 3, U: 3})
    assert found == {"a": [(T, 0), (T, 2), (U, 1)], "b": [(T, 1), (U, 0), (U, 2)]}


def test_round_robin_passes_over_who_does_not_subscribe() -> None:
    found = round_robin([member("a", T), member("b", U)], {T: 2, U: 1})
    assert found == {"a": [(T, 0), (T, 1)], "b": [(U, 0)]}


def test_sticky_moves_no_more_than_balance_needs() -> None:
    old = tuple((T, index) for index in range(4))
    found = sticky([member("a", owned=old), member("b")], {T: 4})
    assert [len(places) for places in found.values()] == [2, 2]
    assert set(found["a"]) < set(old)


def test_what_has_to_move_is_nobodys_until_its_owner_has_given_it_up() -> None:
    first = cooperative_sticky([member("a", owned=((T, 0), (T, 1))), member("b")], {T: 2})
    assert first == {"a": [(T, 0)], "b": []}
    second = cooperative_sticky([member("a", owned=((T, 0),), generation=2), member("b", generation=2)], {T: 2})
    assert second == {"a": [(T, 0)], "b": [(T, 1)]}


def test_an_older_generations_claim_gives_way_and_two_of_one_generation_cancel_each_other() -> None:
    stale = member("a", owned=((T, 0), (T, 1)), generation=1)
    fresh = member("b", owned=((T, 0),), generation=3)
    assert sticky([stale, fresh], {T: 2}) == {"a": [(T, 1)], "b": [(T, 0)]}
    twins = [member(name, owned=((T, 0),)) for name in ("a", "b")]
    assert cooperative_sticky(twins, {T: 1}) == {"a": [(T, 0)], "b": []}


def test_a_static_member_gets_the_same_under_another_member_id() -> None:
    for name in ("range", "roundrobin"):
        before = [SubscribedMember("x-1", "i-1", (T,)), SubscribedMember("a-1", "i-2", (T,))]
        after = [SubscribedMember("a-2", "i-1", (T,)), SubscribedMember("a-1", "i-2", (T,))]
        assert ASSIGNORS[name].assign(before, {T: 3})["x-1"] == ASSIGNORS[name].assign(after, {T: 3})["a-2"]


PLACES = list(product((T, U), range(4)))
MEMBERS = st.lists(
    st.tuples(
        st.sampled_from([(T,), (U,), (T, U)]), st.lists(st.sampled_from(PLACES), unique=True), st.integers(-1, 3)
    ),
    min_size=1,
    max_size=5,
)


@given(MEMBERS, st.integers(0, 4), st.integers(0, 4), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_one_owner_at_most_and_each_owner_subscribes(
    drawn: list[tuple[tuple[str, ...], list[tuple[str, int]], int]], of_t: int, of_u: int, name: str
) -> None:
    members = [SubscribedMember(f"m-{n}", "", topics, tuple(own), gen) for n, (topics, own, gen) in enumerate(drawn)]
    found = ASSIGNORS[name].assign(members, {T: of_t, U: of_u})
    places = [place for given_ in found.values() for place in given_]
    assert len(places) == len(set(places))
    assert list(found) == [each.member_id for each in members]
    assert all(place[0] in each.topics for each in members for place in found[each.member_id])
    if not ASSIGNORS[name].cooperative:
        wanted = {topic for each in members for topic in each.topics}
        assert len(places) == sum(count for topic, count in ((T, of_t), (U, of_u)) if topic in wanted)


@given(st.integers(1, 5), st.integers(0, 12), st.data())
def test_cooperative_members_come_to_rest_balanced_in_two_generations(
    number: int, partitions: int, data: st.DataObject
) -> None:
    owners = data.draw(st.lists(st.integers(0, number - 1), min_size=partitions, max_size=partitions))
    own: Assignment = {f"m-{n}": [(T, p) for p, owner in enumerate(owners) if owner == n] for n in range(number)}
    for generation in (1, 2):
        members = [member(name, owned=tuple(places), generation=generation) for name, places in own.items()]
        told = cooperative_sticky(members, {T: partitions})
        taken = [(place, name) for name, places in own.items() for place in places]
        assert all(place not in told[other] for place, name in taken for other in told if other != name)
        own = told
    loads = [len(places) for places in own.values()]
    assert sum(loads) == partitions
    assert max(loads) - min(loads) <= 1


def test_words_of_members_come_back_as_they_were_said() -> None:
    said = encode_subscription((U, T), [(T, 1), (T, 0), (U, 3)], 7)
    assert decode_member("m", None, said) == SubscribedMember("m", "", (T, U), ((T, 0), (T, 1), (U, 3)), 7)
    assert decode_assignment(encode_assignment([(U, 3), (T, 1)])) == [(T, 1), (U, 3)]
    assert decode_assignment(b"") == []


@pytest.mark.parametrize("nonsense", [b"", b"\0", b"\0\1\xff\xff\xff"])
def test_who_talks_nonsense_subscribes_to_nothing(nonsense: bytes) -> None:
    assert decode_member("m", "i", nonsense) == SubscribedMember("m", "i", ())
