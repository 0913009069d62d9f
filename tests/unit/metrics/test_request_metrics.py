"""Checks what is counted of requests: how many, how long, and the errors of all parts of their responses."""

from __future__ import annotations

from squall.broker.net.request_metrics import MOST_LOOKED_AT, RequestMetrics
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LIST_OFFSETS = 2


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def response(*codes: int) -> ListOffsetsResponse:
    parts = [ListOffsetsPartitionResponse(index, code) for index, code in enumerate(codes)]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", parts)])


def test_a_request_is_counted_when_it_comes_and_timed_when_it_is_answered() -> None:
    clock = Clock()
    metrics = RequestMetrics(clock)
    first, second = metrics.begin(LIST_OFFSETS), metrics.begin(LIST_OFFSETS)
    clock.now = 1.5
    first.end()
    assert (metrics.requests[LIST_OFFSETS], metrics.responses[LIST_OFFSETS]) == (2, 1)
    clock.now = 2.0
    second.end()
    assert metrics.seconds == {LIST_OFFSETS: 3.5}


def test_errors_are_counted_for_each_part_of_a_response() -> None:
    metrics = RequestMetrics(Clock())
    gone, moved = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    metrics.begin(LIST_OFFSETS).count_errors_of(response(0, gone, gone, moved))
    assert metrics.errors == {(LIST_OFFSETS, gone): 2, (LIST_OFFSETS, moved): 1}


def test_a_response_with_very_many_parts_is_looked_at_in_part() -> None:
    metrics = RequestMetrics(Clock())
    metrics.begin(LIST_OFFSETS).count_errors_of(response(*[3] * (MOST_LOOKED_AT * 5)))
    assert metrics.errors[LIST_OFFSETS, 3] == MOST_LOOKED_AT - 2, "the response and its topic are parts, too"
