"""Runs long work, above all on compressed batches, off the event loop and one piece at a time.

A batch may decompress to squall.decompressed.batch.max.bytes. Doing one batch at a time bounds the memory of all, and,
since Python code shares the interpreter lock with the event loop, also how long the loop waits. Work that is expected
to be short has a lane of its own, so that the small batches of one client do not wait for the large ones of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.env import Env

T = TypeVar("T")


class DecompressionPool:
    """Runs pieces of work off the event loop, one at a time per lane (short or long), in order of arrival."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._turn, self._short_turn = trio.Lock(), trio.Lock()

    async def run(self, work: Callable[..., T], *args: Any, short: bool = False) -> T:
        """Return the result of `work`, which must not touch anything that the event loop changes. `short` puts the work
        into the lane for work of at most some 0.1 s.
        """
        async with self._short_turn if short else self._turn:
            return await self._env.cpu(work, *args)
