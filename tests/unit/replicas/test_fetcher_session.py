"""A follower's side of a fetch session: what is named, what is forgotten, and when all of it begins anew."""

from __future__ import annotations

from squall.broker.replicas.fetcher_session import FetcherSession, PartitionFetchState, PartKey
from tests.support.brokers.in_memory import IDS, MemoryBroker
from tests.support.disks.batches import NEWEST, batch


def followed(broker: MemoryBroker, *names: str) -> list[tuple[PartKey, PartitionFetchState]]:
    return [((IDS[name], 0), PartitionFetchState(broker.give(name, leader=2))) for name in names]


def offsets(session: FetcherSession, wanted: list[tuple[PartKey, PartitionFetchState]]) -> dict[bytes, int]:
    """Topic ids that the next request names, with the offset."""
    return {key: part[2] for key, [part] in session.build_request(wanted).topics}


def test_the_first_request_names_everything_and_the_next_ones_what_has_moved() -> None:
    session, wanted = FetcherSession(100), followed(MemoryBroker(), "t", "u")
    assert offsets(session, wanted) == {IDS["t"]: 0, IDS["u"]: 0}
    session.answered(7)
    wanted[1][1].hosted.log.append_as_follower(memoryview(batch(2, leader_epoch=5)), NEWEST)
    assert (session.session_id, session.epoch) == (7, 1)
    assert offsets(session, wanted) == {IDS["u"]: 2}
    session.answered(7)
    assert session.epoch == 2
    assert offsets(session, wanted) == {}


def test_what_is_not_wanted_any_more_is_forgotten_once_and_named_when_it_is_again() -> None:
    session, wanted = FetcherSession(100), followed(MemoryBroker(), "t", "u")
    session.build_request(wanted)
    session.answered(7)
    assert session.build_request(wanted[:1]).forgotten == [(IDS["u"], [0])]
    session.answered(7)
    assert session.build_request(wanted[:1]) == ([], [])
    session.answered(7)
    assert offsets(session, wanted) == {IDS["u"]: 0}


def test_one_is_forgotten_though_another_takes_its_place() -> None:
    session, wanted = FetcherSession(100), followed(MemoryBroker(), "t", "u")
    session.build_request(wanted[:1])
    session.answered(7)
    named = session.build_request(wanted[1:])
    assert [key for key, _ in named.topics] == [IDS["u"]]
    assert named.forgotten == [(IDS["t"], [0])]


def test_a_leader_without_room_for_a_session_is_told_everything_each_time() -> None:
    session, wanted = FetcherSession(100), followed(MemoryBroker(), "t")
    for _ in range(2):
        assert offsets(session, wanted) == {IDS["t"]: 0}
        session.answered(0)
        assert session.epoch == 0


def test_a_session_that_is_begun_anew_replaces_the_old_one() -> None:
    session, wanted = FetcherSession(100), followed(MemoryBroker(), "t")
    session.build_request(wanted)
    session.answered(7)
    session.restart()
    assert (session.session_id, session.epoch) == (7, 0)
    assert offsets(session, wanted) == {IDS["t"]: 0}
    session.answered(8)
    assert (session.session_id, session.epoch) == (8, 1)


def test_the_epoch_behind_the_largest_is_1() -> None:
    session = FetcherSession(100)
    session.answered(7)
    session.epoch = 2**31 - 1
    session.answered(7)
    assert session.epoch == 1
