"""A wait for an answer, from a handler that seldom needs to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class DeferredResponse(NamedTuple):
    """Represents an answer that comes after a wait; a handler returns it instead of the answer. It starts no task
    unless it must: a task costs more than most answers do.
    """

    wait: Callable[[], Awaitable[Any]]
    """Await this once, in a task of its own, to get the answer."""
    holds: bool = False
    """True where the request takes effect only on the way: then nothing more is taken from its connection until it is
    answered. False where it has taken effect, and only its answer waits.
    """
