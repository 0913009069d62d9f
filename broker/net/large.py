"""Requests that are larger than most. Their bytes are read, and their answers written, off the event loop and one at a
time; and there is an end to what one may list, because a list of a few megabytes takes gigabytes as objects.

Produce and Fetch are not among them: they have readers of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from broker.protocol.errors import MalformedFrame
from broker.protocol.wire import Message, Structure

if TYPE_CHECKING:
    from broker.env import Env

LARGE: Final = 32 << 10
"""A smaller request is read in less time than handing it to a thread and others' turns take."""
LARGEST: Final = 4 << 20
LARGEST_FETCH: Final = 1 << 20
"""Of 30,000 partitions."""
MOST_LISTED: Final = 50_000


class LargeRequests:
    """Reads and writes them."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._turn = trio.Lock()

    async def read(self, kind: type[Message], frame: memoryview, at: int, version: int) -> Any:
        """The decoded request. Raises MalformedFrame. Nothing may be received into the frame's buffer meanwhile."""
        if len(frame) > LARGEST:
            raise MalformedFrame(f"a request of {len(frame)} bytes that is no Produce: at most {LARGEST} are allowed")
        async with self._turn:
            return await self._env.cpu(_read, kind, frame, at, version)

    async def write(self, answer: Any, version: int) -> bytes:
        """The bytes of its answer."""
        async with self._turn:
            found: bytes = await self._env.cpu(answer.encode, version)
            return found


def _read(kind: type[Message], frame: memoryview, at: int, version: int) -> Message:
    request, _ = kind.decode(frame, at, version)
    listed = _listed(request)
    if listed > MOST_LISTED:
        raise MalformedFrame(f"a request that lists {listed} things: at most {MOST_LISTED} are allowed")
    return request


def _listed(request: Structure) -> int:
    """The elements of all its lists."""
    count = 0
    todo = [request]
    while todo:
        one = todo.pop()
        for name in one.__match_args__:
            value = getattr(one, name)
            if isinstance(value, list):
                count += len(value)
                if value and isinstance(value[0], Structure):
                    todo += value
            elif isinstance(value, Structure):
                todo.append(value)
    return count
