"""Work that may take long, above all on packed batches: off the event loop, and one at a time.

A batch may unpack to squall.decompressed.batch.max.bytes. One at a time, that bounds the memory of all of them. What is
done in Python takes turns with the event loop: one at a time, that bounds what the loop waits for, too. Work that is
short by what is known of it has a lane of its own, so that nobody's small batches wait for somebody's large ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.env import Env

T = TypeVar("T")


class DecompressionPool:
    """Whoever has such work waits for its turn here: who came first goes first."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._turn, self._short_turn = trio.Lock(), trio.Lock()

    async def run(self, work: Callable[..., T], *args: Any, short: bool = False) -> T:
        """The result of `work`, which touches nothing that the event loop changes. short: some 0.1 s at most."""
        async with self._short_turn if short else self._turn:
            return await self._env.cpu(work, *args)
