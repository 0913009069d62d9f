"""Checks waits on a replica: each is answered once, in order, or given up without a trace."""

from __future__ import annotations

from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.purgatory import DelayedProduce, ProducePurgatory, ProduceResult, give_up

LOST = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Request:
    """Counts how many of its waiters have their answer."""

    def __init__(self) -> None:
        self.answered = 0

    def settled(self) -> None:
        self.answered += 1


def awaited(queue: ProducePurgatory, request: Request, *ends: int) -> list[DelayedProduce]:
    """Appends with these ends, in the queue."""
    appends = [DelayedProduce(queue, end, ProduceResult(0, 0, end - 1)) for end in ends]
    for append in appends:
        queue.add(append, request)
    return appends


def test_an_offset_answers_what_ends_at_it_or_before_and_nothing_else() -> None:
    queue, request = ProducePurgatory(), Request()
    appends = awaited(queue, request, 3, 5, 8)
    assert not queue.is_due(2)
    assert queue.is_due(5)
    queue.answer_up_to(5, 0)
    assert [append.is_owed for append in appends] == [False, False, True]
    assert (request.answered, len(queue)) == (2, 1)
    assert not queue.is_due(7)


def test_an_error_takes_the_offset_back() -> None:
    queue, request = ProducePurgatory(), Request()
    (append,) = awaited(queue, request, 3)
    queue.answer_up_to(3, int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
    assert (append.result.error, append.result.base_offset) == (20, -1)


def test_a_lost_leadership_answers_all_with_the_leader_to_ask() -> None:
    queue, request = ProducePurgatory(), Request()
    appends = awaited(queue, request, 3, 5)
    queue.answer_all(LOST, (2, 7))
    assert [(a.result.error, a.result.leader) for a in appends] == [(LOST, (2, 7))] * 2
    assert (request.answered, len(queue)) == (2, 0)


def test_what_was_given_up_is_answered_to_nobody() -> None:
    queue, request = ProducePurgatory(), Request()
    appends = awaited(queue, request, 3, 5, 8)
    assert give_up(appends[:1]) == appends[:1]
    assert give_up(appends[:1]) == []
    queue.answer_up_to(8, 0)
    assert request.answered == 2


def test_those_who_gave_up_are_swept_once_they_are_more_than_half() -> None:
    queue, request = ProducePurgatory(), Request()
    appends = awaited(queue, request, 3, 5, 8, 9)
    give_up(appends[:2])
    assert len(queue) == 4
    give_up(appends[2:3])
    assert len(queue) == 1
    queue.answer_up_to(9, 0)
    assert request.answered == 1
