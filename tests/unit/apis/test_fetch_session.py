"""Incremental fetch sessions (KIP-227)."""

from __future__ import annotations

import random

import pytest

from squall.broker.apis.fetch_session import FetchSession, FetchSessions, SessionError
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.hot import FetchIn, FetchRequestPartition, FetchResponsePartition

T, U = b"t", b"u"


def request(
    *parts: tuple[bytes, int, int],
    session: tuple[int, int] = (0, 0),
    forgotten: tuple[bytes, ...] = (),
    replica: int = -1,
) -> FetchIn:
    """A Fetch of (topic, partition, offset)."""
    topics = [(key, [FetchRequestPartition(index, -1, offset, -1, -1, 100, -1)]) for key, index, offset in parts]
    return FetchIn(replica, -1, 0, 1, 1000, 0, *session, None, topics, [(key, [0]) for key in forgotten], "")


def opened(sessions: FetchSessions, *parts: tuple[bytes, int, int], now_ms: int = 0, replica: int = -1) -> FetchSession:
    session, _ = sessions.open(request(*parts, replica=replica), now_ms)
    assert session is not None
    return session


def asked_of(sessions: FetchSessions, what: FetchIn) -> list[tuple[bytes, int, int]]:
    """Return (topic, partition, offset) of every partition that a request asks for, including those of its session."""
    return [(key, part.index, part.offset) for key, part in sessions.open(what, 0)[1]]


def test_an_incremental_request_asks_for_what_was_asked_before_with_what_it_moves() -> None:
    sessions = FetchSessions(10, random.Random(1))
    session = opened(sessions, (T, 0, 5), (U, 0, 7))
    assert asked_of(sessions, request((U, 0, 8), session=(session.session_id, 1))) == [(T, 0, 5), (U, 0, 8)]


def test_forgotten_partitions_are_not_asked_for_any_more() -> None:
    sessions = FetchSessions(10, random.Random(1))
    session = opened(sessions, (T, 0, 5), (U, 0, 7))
    assert asked_of(sessions, request(session=(session.session_id, 1), forgotten=(T,))) == [(U, 0, 7)]


def test_each_epoch_is_good_for_one_request() -> None:
    sessions = FetchSessions(10, random.Random(1))
    session = opened(sessions, (T, 0, 5))
    sessions.open(request(session=(session.session_id, 1)), 0)
    with pytest.raises(SessionError) as wrong:
        sessions.open(request(session=(session.session_id, 1)), 0)
    assert wrong.value.error == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_behind_the_largest_is_1() -> None:
    sessions = FetchSessions(10, random.Random(1))
    session = opened(sessions, (T, 0, 5))
    session.epoch = 2**31 - 1
    sessions.open(request(session=(session.session_id, 2**31 - 1)), 0)
    assert session.epoch == 1


def test_a_final_request_ends_its_session() -> None:
    sessions = FetchSessions(10, random.Random(1))
    session = opened(sessions, (T, 0, 5))
    assert sessions.open(request((T, 0, 6), session=(session.session_id, -1)), 0)[0] is None
    with pytest.raises(SessionError) as wrong:
        sessions.open(request(session=(session.session_id, 1)), 0)
    assert wrong.value.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_without_a_free_slot_a_fetcher_is_served_without_a_session() -> None:
    sessions = FetchSessions(1, random.Random(1))
    opened(sessions, (T, 0, 5))
    session, parts = sessions.open(request((U, 0, 7)), 1000)
    assert session is None
    assert len(parts) == 1


def test_a_session_that_nobody_has_used_for_long_makes_room() -> None:
    sessions = FetchSessions(1, random.Random(1))
    old = opened(sessions, (T, 0, 5))
    opened(sessions, (U, 0, 7), now_ms=200_000)
    assert sessions.evictions == 1
    with pytest.raises(SessionError):
        sessions.open(request(session=(old.session_id, 1)), 200_000)


def test_partitions_with_records_go_to_the_back_of_the_queue() -> None:
    sessions = FetchSessions(10, random.Random(1))
    session = opened(sessions, (T, 0, 5), (U, 0, 7))
    session.changed([(T, FetchResponsePartition(0, records=b"x")), (U, FetchResponsePartition(0, records=b""))])
    assert list(session.parts) == [(U, 0), (T, 0)]


def test_errors_are_told_each_time_and_offsets_once() -> None:
    session = FetchSession(1, -1, 0)
    quiet, wrong = FetchResponsePartition(0, 0, 5, records=b""), FetchResponsePartition(1, 6, records=b"")
    assert len(session.changed([(T, quiet), (T, wrong)])) == 2
    assert session.changed([(T, quiet), (T, wrong)]) == [(T, wrong)]
    moved = quiet._replace(high_watermark=6)
    assert session.changed([(T, moved)]) == [(T, moved)]


@pytest.mark.parametrize("by_ids", [False, True])
def test_a_session_does_not_change_between_names_and_ids(by_ids: bool) -> None:
    sessions = FetchSessions(10, random.Random(1))
    session, _ = sessions.open(request((T, 0, 5)), 0, by_ids=by_ids)
    assert session is not None
    with pytest.raises(SessionError) as wrong:
        sessions.open(request((U, 0, 5), session=(session.session_id, 1)), 0, by_ids=not by_ids)
    assert wrong.value.error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.open(request(session=(session.session_id, 1)), 0, by_ids=by_ids)[0] is session


def test_where_sessions_have_too_many_partitions_there_is_no_other_session() -> None:
    sessions = FetchSessions(10, random.Random(1), partitions=3)
    opened(sessions, (T, 0, 5), (U, 0, 5))
    session, asked = sessions.open(request((T, 0, 5), (U, 0, 5)), 0)
    assert session is None
    assert len(list(asked)) == 2, "it is served all the same"
    assert opened(sessions, (T, 0, 5)) is not None


def test_a_session_that_grows_too_large_ends() -> None:
    sessions = FetchSessions(10, random.Random(1), partitions=2)
    session = opened(sessions, (T, 0, 5), (U, 0, 5))
    with pytest.raises(SessionError) as wrong:
        sessions.open(request((T, 1, 5), session=(session.session_id, 1)), 0)
    assert wrong.value.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert opened(sessions, (T, 0, 5), (U, 0, 5)) is not None, "its room is free again"


def test_sessions_that_nobody_uses_make_room() -> None:
    sessions = FetchSessions(10, random.Random(1), partitions=2)
    opened(sessions, (T, 0, 5), (U, 0, 5))
    assert sessions.open(request((T, 0, 5)), 1000)[0] is None
    assert opened(sessions, (T, 0, 5), now_ms=10**9) is not None
    assert sessions.evictions == 1


def test_what_is_forgotten_or_over_takes_no_room() -> None:
    sessions = FetchSessions(10, random.Random(1), partitions=2)
    first = opened(sessions, (T, 0, 5), (U, 0, 5))
    sessions.open(request(session=(first.session_id, 1), forgotten=(U,)), 0)
    second = opened(sessions, (T, 0, 5))
    sessions.open(request(session=(first.session_id, -1)), 0)
    sessions.open(request(session=(second.session_id, -1)), 0)
    assert opened(sessions, (T, 0, 5), (U, 0, 5)) is not None


def is_alive(sessions: FetchSessions, session: FetchSession) -> bool:
    return sessions._sessions.get(session.session_id) is session


def test_a_follower_takes_the_slot_of_the_consumer_with_the_fewest_partitions() -> None:
    sessions = FetchSessions(3, random.Random(1))
    follower = opened(sessions, (T, 0, 5), replica=2)
    large, small = opened(sessions, (T, 0, 5), (U, 0, 5)), opened(sessions, (T, 0, 5))
    opened(sessions, (T, 0, 5), replica=3)
    assert [is_alive(sessions, session) for session in (follower, large, small)] == [True, True, False]
    assert sessions.evictions == 1


def test_a_follower_does_not_take_the_slot_of_another_and_a_consumer_takes_none() -> None:
    sessions = FetchSessions(2, random.Random(1))
    opened(sessions, (T, 0, 5), replica=2)
    opened(sessions, (T, 0, 5), replica=3)
    assert sessions.open(request((T, 0, 5), replica=4), 1000)[0] is None
    assert sessions.open(request((T, 0, 5)), 1000)[0] is None


def test_a_follower_takes_consumers_room_for_its_partitions_the_largest_first() -> None:
    sessions = FetchSessions(10, random.Random(1), partitions=4)
    small = opened(sessions, (T, 0, 5))
    large = opened(sessions, (T, 0, 5), (T, 1, 5), (T, 2, 5))
    follower = opened(sessions, (T, 0, 5), (U, 0, 5), replica=2)
    assert [is_alive(sessions, session) for session in (small, large, follower)] == [True, False, True]
    grown = request((U, 1, 5), (U, 2, 5), session=(follower.session_id, 1), replica=2)
    assert sessions.open(grown, 0)[0] is follower
    assert not is_alive(sessions, small)
