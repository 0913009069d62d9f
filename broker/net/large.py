"""Decodes large requests, and encodes their responses, off the event loop and one at a time. The number of list
elements is limited, because a list of a few megabytes takes gigabytes as objects.

Produce and Fetch are not handled here: they have decoders of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.wire import Message, Structure

if TYPE_CHECKING:
    from squall.broker.config import BrokerConfig
    from squall.broker.env import Env

LARGE: Final = 32 << 10
"""Is the size, in bytes, from which on a request counts as large. Decoding a smaller request takes less time than
handing it to a thread.
"""


class LargeRequestCodec:
    """Decodes large requests and encodes their responses, one at a time, in a thread."""

    def __init__(self, env: Env, config: BrokerConfig) -> None:
        self._env = env
        self._most_bytes, self._most_listed = config.squall_request_max_bytes, config.squall_request_max_elements
        self._turn = trio.Lock()

    async def read(self, kind: type[Message], frame: memoryview, at: int, version: int) -> Any:
        """Return the request, decoded in a thread. The caller must not receive into the frame's buffer until then.
        Raises MalformedFrame, also if the request has too many bytes or elements for the broker's settings.
        """
        size, most = len(frame), self._most_bytes
        if size > most:
            raise MalformedFrame(f"a request of {size} bytes that is no Produce: squall.request.max.bytes={most}")
        async with self._turn:
            return await self._env.cpu(_read, kind, frame, at, version, self._most_listed)

    async def write(self, answer: Any, version: int) -> bytes:
        """Return the response `answer`, encoded in a thread once no other large request or response is in work."""
        async with self._turn:
            found: bytes = await self._env.cpu(answer.encode, version)
            return found


def _read(kind: type[Message], frame: memoryview, at: int, version: int, most: int) -> Message:
    request, _ = kind.decode(frame, at, version)
    listed = _listed(request)
    if listed > most:
        raise MalformedFrame(f"a request that lists {listed} things: squall.request.max.elements={most}")
    return request


def _listed(request: Structure) -> int:
    """Return the number of elements in all lists of the request."""
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
