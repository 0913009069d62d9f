"""Many requests to a coordinator: they are handled in order, and other tasks run in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.apis.coordinator_requests import MOST_AT_ONCE, answer_each, ask
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.net.fair_scheduler import BUDGET_S, FairScheduler, ResponseTask

ENV: Any = None
"""No Env: the tested code uses it only if there is a time-out."""


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
        assert isinstance(answer, DeferredResponse)
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
    """Each may ask for all committed offsets of twenty groups: four hundred once delayed a broker's heartbeats."""
    waiting: list[Callable[[int], None]] = []
    made: list[int] = []
    now_s, passes = 0.0, 0

    def respond(answers: list[int]) -> None:
        nonlocal now_s
        now_s += BUDGET_S
        made.append(passes)

    async def answered(turns: FairScheduler, later: DeferredResponse) -> None:
        answer = ResponseTask(turns, lambda: now_s)
        await answer.begin()
        await later.wait()
        answer.end()

    async def main() -> None:
        nonlocal passes
        async with trio.open_nursery() as nursery:
            turns = FairScheduler(nursery.start_soon)
            for _ in range(20):
                later = ask(ENV, lambda _, answer: waiting.append(answer), [1], respond, 0, has_large_answers=True)
                nursery.start_soon(answered, turns, later)
            await trio.testing.wait_all_tasks_blocked()
            for answer in waiting:
                answer(7)
            while len(made) < 20:
                passes += 1
                await trio.lowlevel.checkpoint()

    trio.run(main)
    assert max(made) - min(made) > 10, "each takes all that clients have of one pass of the loop"


def test_few_are_answered_at_once() -> None:
    requests = list(range(MOST_AT_ONCE))
    assert ask(ENV, lambda request, answer: answer(request), requests, list, 0) == requests


def test_each_name_has_one_answer() -> None:
    """A name has one answer, however often and wherever the requests name it."""
    assert answer_each(["a", "b", "a", "c", "a"], [1, 2, 3], again=0) == [1, 2, 0, 3, 0]
    assert answer_each([], [], again=0) == []
