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

ResponseSteps = Generator[None, None, Any]
"""Builds a response in pieces of work. Other tasks may run at each `yield`."""
FEW: Final = 200
"""Limits the entries (offsets or groups) of a response that is built in one step. A larger one is built by
`LargeResponseLane`, after the other large responses. An entry takes some µs. The limit is low because a client may send
such a request again and again.
"""
CHARACTERS_OF_ONE: Final = 64
"""Is the length of a commit's metadata that counts as one entry of a response, because long texts make a response
large, too.
"""
PIECE: Final = 500
"""Limits the entries (offsets or groups) of a response that are built before other tasks run."""


class LargeResponseLane:
    """Builds large responses one at a time. All APIs of a broker share one lane."""

    def __init__(self, env: Env) -> None:
        self._env, self._turn = env, trio.Lock()

    async def build(self, begin: Callable[[], Awaitable[ResponseSteps]], slot: PendingResponse) -> bytes | list[Any]:
        """Return the encoded response, or [] if the connection has ended. Once all earlier responses are built, `begin`
        is called to collect the data. `begin` must not wait for logs or peers, because the other responses of the lane
        would wait with it.
        """
        async with self._turn:
            making: ResponseSteps | None = None
            while not slot.conn.closed:
                if making is None:
                    # Only now: data collected earlier would take the memory that the lane saves, while it waits.
                    making = await begin()
                try:
                    next(making)
                except StopIteration as end:
                    encoded: bytes = await self._env.cpu(end.value.encode, slot.version)
                    return encoded
                await give_way()
        return []


def run_to_end(making: ResponseSteps) -> Any:
    """Return the response that the steps build, without letting other tasks run."""
    while True:
        try:
            next(making)
        except StopIteration as end:
            return end.value
