"""Builds large responses (thousands of offsets, groups or members), which small requests ask for.

Large responses take memory and the event loop while they are made. So they are made one at a time, in pieces between
which other tasks run, and encoded off the loop; and none is made for a connection that has ended.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

import trio

from squall.broker.net.fair_scheduler import give_way

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from squall.broker.env import Env
    from squall.broker.net.connection import PendingResponse

Making = Generator[None, None, Any]
"""Makes a response in pieces of work; others may have a turn between them."""
FEW: Final = 200
"""Limits the entries of a response that is built at once. An entry takes some µs, and a client may repeat its request.
"""
CHARACTERS_OF_ONE: Final = 64
"""Of text: as many weigh as much as one thing."""
PIECE: Final = 500
"""Things between two turns of others."""


class LargeResponseLane:
    """The lane of such answers. All APIs of a broker share it."""

    def __init__(self, env: Env) -> None:
        self._env, self._turn = env, trio.Lock()

    async def build(self, begin: Callable[[], Awaitable[Making]], slot: PendingResponse) -> bytes | list[Any]:
        """The encoded response; nothing for a connection that has ended. `begin` gets what is to be told, once it is
        this one's turn. It is not to wait for logs or peers: others in the lane would wait with it.
        """
        async with self._turn:
            making: Making | None = None
            while not slot.conn.closed:
                if making is None:
                    making = await begin()
                try:
                    next(making)
                except StopIteration as end:
                    encoded: bytes = await self._env.cpu(end.value.encode, slot.version)
                    return encoded
                await give_way()
        return []


def made(making: Making) -> Any:
    """All of it at once."""
    while True:
        try:
            next(making)
        except StopIteration as end:
            return end.value
