"""Checks that a request of an administrator moves the beginning of what is judged, so far and no further."""

from __future__ import annotations

from squall.checkers.history.tables import ObservedPartition


def partition(*, expired_to: int = 0, log_start: int = -1) -> ObservedPartition:
    return ObservedPartition(0, "t", 0, "delete", -1, expired_to=expired_to, log_start=log_start)


def test_nothing_may_be_missing_before_anybody_asked() -> None:
    assert partition(log_start=40).judged_from == 0


def test_records_may_be_missing_below_what_was_asked_for_and_no_further() -> None:
    asked = partition(log_start=40)
    asked.asked_to_remove(30)
    asked.asked_to_remove(20)
    assert asked.judged_from == 30, "the log starts at 40, and nobody asked for that"


def test_what_was_asked_for_and_not_done_is_still_to_be_there() -> None:
    asked = partition(log_start=10)
    asked.asked_to_remove(30)
    assert asked.judged_from == 10


def test_retention_removes_beside_a_request_and_an_unknown_one_removes_anything() -> None:
    kept, altered = partition(expired_to=40, log_start=40), partition(log_start=40)
    kept.asked_to_remove(30)
    altered.asked_to_remove(30)
    altered.asked_to_remove(-1)
    assert kept.judged_from == altered.judged_from == 40
