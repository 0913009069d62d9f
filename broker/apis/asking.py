"""Asking a coordinator: several requests at once, and one answer to the client when all of theirs are there."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from broker.net.later import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.env import Env

R = TypeVar("R")
A = TypeVar("A")


def ask(
    env: Env,
    submit: Callable[[R, Callable[[A], None]], None],
    requests: Sequence[R],
    respond: Callable[[list[A]], Any],
    timed_out: A,
    timeout_s: float = inf,
) -> Any:
    """Submit all, now and in their order, and respond once all are answered: at once, or with a `Later`. What is not
    answered within `timeout_s` counts as `timed_out`.
    """
    answers: list[A | None] = [None] * len(requests)
    owed, done = len(requests), trio.Event()

    def take(at: int, answer: A) -> None:
        nonlocal owed
        answers[at] = answer
        owed -= 1
        if not owed:
            done.set()

    for at, request in enumerate(requests):
        submit(request, lambda answer, at=at: take(at, answer))  # type: ignore[misc]
    if not owed:
        return respond([timed_out if answer is None else answer for answer in answers])

    async def wait() -> Any:
        if timeout_s == inf:
            await done.wait()
        else:
            with env.timeout(timeout_s):
                await done.wait()
        return respond([timed_out if answer is None else answer for answer in answers])

    return Later(wait)
