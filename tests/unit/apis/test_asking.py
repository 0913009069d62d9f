"""Many requests to a coordinator: in their order, with turns for others in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from broker.apis.asking import MOST_AT_ONCE, ask, of_each
from broker.net.later import Later

ENV: Any = None
"""Asked for the time only where there is a time-out."""


@pytest.mark.parametrize("rounds", [2, 5])
def test_others_have_a_turn_after_so_many(rounds: int) -> None:
    requests = list(range(rounds * MOST_AT_ONCE))
    submitted: list[int] = []
    seen: list[int] = []

    def submit(request: int, answer: Callable[[int], None]) -> None:
        submitted.append(request)
        answer(-request)

    async def bystander() -> None:
        while len(submitted) < len(requests):
            seen.append(len(submitted))
            await trio.lowlevel.checkpoint()

    async def main() -> list[int]:
        answer = ask(ENV, submit, requests, list, 0)
        assert isinstance(answer, Later)
        assert answer.holds, "what follows on the connection takes effect behind all of them"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bystander)
            await trio.lowlevel.checkpoint()
            found: list[int] = await answer.wait()
        return found

    assert trio.run(main) == [-request for request in requests]
    assert submitted == requests
    assert len(seen) >= rounds - 1


def test_requests_that_are_answered_together_make_their_answers_in_turns() -> None:
    """Each may be about all positions of twenty groups: four hundred of them kept a broker from its heartbeats."""
    waiting: list[Callable[[int], None]] = []
    made: list[int] = []

    async def main() -> None:
        answers = [ask(ENV, lambda _, answer: waiting.append(answer), [1], made.extend, 0) for _ in range(3)]
        async with trio.open_nursery() as nursery:
            for each in answers:
                nursery.start_soon(each.wait)
            await trio.testing.wait_all_tasks_blocked()
            for answer in waiting:
                answer(7)
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            assert made == [], "whoever has spent its part of the loop queues first"

    trio.run(main)
    assert made == [7, 7, 7]


def test_few_are_answered_at_once() -> None:
    requests = list(range(MOST_AT_ONCE))
    assert ask(ENV, lambda request, answer: answer(request), requests, list, 0) == requests


def test_each_name_has_one_answer() -> None:
    """However often it is named, and wherever."""
    assert of_each(["a", "b", "a", "c", "a"], [1, 2, 3], again=0) == [1, 2, 0, 3, 0]
    assert of_each([], [], again=0) == []
