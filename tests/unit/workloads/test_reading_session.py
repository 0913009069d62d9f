"""A consumer's fetch session names what is new or has moved, and begins again where the broker has none."""

from __future__ import annotations

from squall.broker.protocol.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from squall.workloads.client.reading_session import ClientFetchSession, FetchSessionRequest, OffsetBounds

ID = bytes(16)
A, B = ("t", 0), ("t", 1)


def test_a_consumer_without_sessions_names_everything_each_time() -> None:
    session = ClientFetchSession(wanted=False)
    for _ in range(2):
        assert session.request_for({A: (5, 1, ID)}) == FetchSessionRequest(0, FINAL_EPOCH, {A: (5, 1, ID)}, {})
        session.answered(0)


def test_what_stands_still_is_named_once_and_what_is_read_no_more_is_forgotten() -> None:
    session = ClientFetchSession(wanted=True)
    assert session.request_for({A: (5, 1, ID), B: (7, 1, ID)}) == FetchSessionRequest(
        0, INITIAL_EPOCH, {A: (5, 1, ID), B: (7, 1, ID)}, {}
    )
    session.answered(42)
    assert session.request_for({A: (6, 1, ID), B: (7, 1, ID)}) == FetchSessionRequest(42, 1, {A: (6, 1, ID)}, {})
    session.answered(42)
    assert session.request_for({A: (6, 1, ID)}) == FetchSessionRequest(42, 2, {}, {B: ID})


def test_a_broker_without_room_is_asked_for_everything_again() -> None:
    session = ClientFetchSession(wanted=True)
    session.request_for({A: (5, 1, ID)})
    session.answered(0)
    assert session.request_for({A: (5, 1, ID)}).parts == {A: (5, 1, ID)}


def test_after_a_session_was_lost_the_next_request_opens_another_in_its_place() -> None:
    session = ClientFetchSession(wanted=True)
    session.request_for({A: (5, 1, ID)})
    session.answered(42)
    session.request_for({A: (5, 1, ID)})
    session.restart()
    assert session.request_for({A: (5, 1, ID)}) == FetchSessionRequest(42, INITIAL_EPOCH, {A: (5, 1, ID)}, {})


def test_what_an_incremental_answer_leaves_out_is_as_it_was_told_last() -> None:
    session = ClientFetchSession(wanted=True)
    session.request_for({A: (5, 1, ID), B: (7, 1, ID)})
    assert not session.answered(42), "the first answer names everything"
    session.record(A, OffsetBounds(5, 5, 0))
    session.record(B, OffsetBounds(9, 8, 2))
    session.request_for({A: (5, 1, ID), B: (7, 1, ID)})
    assert session.answered(42)
    session.record(A, None)
    assert (session.unchanged(A), session.unchanged(B)) == (None, OffsetBounds(9, 8, 2)), (
        "an error says nothing of an end"
    )
    session.request_for({A: (5, 1, ID)})
    session.request_for({A: (5, 1, ID), B: (7, 1, ID)})
    assert session.unchanged(B) is None, "the session had forgotten it"


def test_nothing_is_known_of_what_another_session_was_told() -> None:
    session = ClientFetchSession(wanted=True)
    session.request_for({A: (5, 1, ID)})
    session.answered(42)
    session.record(A, OffsetBounds(5, 5, 0))
    session.restart()
    session.request_for({A: (5, 1, ID)})
    assert (session.answered(43), session.unchanged(A)) == (False, None)


def test_an_answer_without_a_session_leaves_nothing_out() -> None:
    session = ClientFetchSession(wanted=False)
    session.request_for({A: (5, 1, ID)})
    assert not session.answered(0)
    session.record(A, OffsetBounds(5, 5, 0))
    assert session.unchanged(A) is None
