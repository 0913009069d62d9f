"""Submits several requests to a coordinator, and responds to the client once all of them are answered."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.net.fair_scheduler import give_way
from squall.broker.work import DONE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from squall.broker.env import Env

R = TypeVar("R")
A = TypeVar("A")

MOST_AT_ONCE: Final = 500
"""Limits the requests that are submitted before other tasks run. A coordinator needs 15 µs for a request."""
MOST_LARGE_AT_ONCE: Final = 50
"""Limits the requests that are submitted before other tasks run, if an answer may have hundreds of entries."""


def ask(
    env: Env,
    submit: Callable[[R, Callable[[A], None]], None],
    requests: Sequence[R],
    respond: Callable[[list[A]], Any],
    timed_out: A,
    timeout_s: float = inf,
    *,
    has_large_answers: bool = False,
) -> Any:
    """Submit all requests in their order, and call `respond` once all are answered: at once, or in a
    `DeferredResponse`.

    A request that is not answered within `timeout_s` counts as answered with `timed_out`. Many requests are submitted
    in several pieces, and other tasks run between the pieces. `has_large_answers` says that an answer may have
    thousands of entries: then a piece has fewer requests, and the response is built in a piece of its own.
    """
    answers: list[A | None] = [None] * len(requests)
    owed, done = len(requests), trio.Event()
    at_once = MOST_LARGE_AT_ONCE if has_large_answers else MOST_AT_ONCE

    def take(at: int, answer: A) -> None:
        nonlocal owed
        answers[at] = answer
        owed -= 1
        if not owed:
            done.set()

    def submit_some(begin: int) -> None:
        some = requests[begin : begin + at_once]
        DONE.entries += len(some)
        for at, request in enumerate(some, begin):
            submit(request, lambda answer, at=at: take(at, answer))  # type: ignore[misc]

    submit_some(0)
    if not owed:
        return respond([timed_out if answer is None else answer for answer in answers])

    async def wait() -> Any:
        for begin in range(at_once, len(requests), at_once):
            await give_way()
            submit_some(begin)
        if timeout_s == inf:
            await done.wait()
        else:
            with env.timeout(timeout_s):
                await done.wait()
        if has_large_answers:
            await give_way()
        return respond([timed_out if answer is None else answer for answer in answers])

    return DeferredResponse(wait, holds=len(requests) > at_once)  # the rest takes effect during the wait


def answer_each(names: Sequence[str], answers: Sequence[A], again: A) -> list[A]:
    """Return one answer for each of `names`, in their order. `answers` are those for the distinct names. The second and
    later mentions of a name get `again`: an answer may be a thousand times as long as its name, so a request of a few
    kilobytes could ask for gigabytes.
    """
    left = dict(zip(dict.fromkeys(names), answers, strict=True))
    return [left.pop(name, again) for name in names]
