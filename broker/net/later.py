"""Answers that have to be waited for, of handlers that most often need not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Later(NamedTuple):
    """What such a handler returns instead of its answer. A task that waits costs more than most answers do."""

    wait: Callable[[], Awaitable[Any]]
    """To be awaited in a task of its own: the answer. Once."""
