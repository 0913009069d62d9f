"""Defines `DeferredResponse`, which a handler returns if its response must wait. Most responses need not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class DeferredResponse(NamedTuple):
    """Represents a response that comes after a wait. If a handler need not wait, it should return the response itself,
    because a `DeferredResponse` needs a task, which costs more than most responses do.
    """

    wait: Callable[[], Awaitable[Any]]
    """Waits, and returns the response. The server calls it once, in a task for this request."""
    holds: bool = False
    """Is True if the request takes effect only during the wait: then no further request is taken from the connection
    until the response. Is False if the request has taken effect, and only its response waits.
    """
