"""Length-prefixed frames from a link: one `recv_into` per wake-up, into one buffer that is used again and again.

Growing buffers and joining pieces cost 30 to 45 % of throughput where this was measured (ARCHITECTURE.md, "The hot
path"); so a connection keeps one buffer, small at first, larger once a larger frame comes, and complete frames are
handed out as views into it. A view is valid until the next `burst`.

A frame's announced length is never believed before its bytes arrive: the buffer at most doubles while they do, and what
all connections hold beyond their first small buffer is bounded by `ReceiveMemory` (`queued.max.request.bytes`).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

import trio

from broker.env import LinkClosed
from broker.protocol.errors import MalformedFrame

if TYPE_CHECKING:
    from broker.env import Env, Transport

SMALL = 64 << 10
LARGE = 4 << 20
_LENGTH = Struct(">i").unpack_from


class ReceiveMemory:
    """What all connections together may hold in enlarged receive buffers, in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._freed = trio.Event()

    def take(self, amount: int) -> bool:
        """Claim `amount` more bytes. False if that would exceed the limit."""
        if amount > 0 and self.used + amount > self.limit:
            return False
        self.used += amount
        return True

    def give(self, amount: int) -> None:
        """Return bytes, and wake the connections that wait for them."""
        self.used -= amount
        assert self.used >= 0
        freed, self._freed = self._freed, trio.Event()
        freed.set()

    async def wait_freed(self) -> None:
        """Until somebody returns memory."""
        await self._freed.wait()


class Frames:
    """The receiving side of one link."""

    def __init__(
        self, env: Env, link: Transport, memory: ReceiveMemory, max_frame: int, *, patience_s: float = 10.0
    ) -> None:
        self._env, self._link, self._memory, self._max_frame = env, link, memory, max_frame
        self._patience_s = patience_s
        self._view = memoryview(bytearray(SMALL))
        self._start = self._end = 0
        """Begin and end of the bytes that are no complete frame yet; both 0 if there are none."""

    async def burst(self) -> list[memoryview]:
        """Bodies of all complete frames after the receive that completes at least one, in order; views, good until the
        next call.

        Raises MalformedFrame for an impossible length, LinkClosed when the peer ends or memory stays short for
        `patience_s`.
        """
        link = self._link
        while True:
            if self._end:
                await self._make_room()
            await link.wait_readable()
            received = link.recv_into(self._view[self._end :])
            if received is None:
                continue
            if received == 0:
                raise LinkClosed("peer closed the connection")
            self._end += received
            frames = self._complete()
            if frames:
                return frames

    def _complete(self) -> list[memoryview]:
        view, at, end = self._view, self._start, self._end
        frames = []
        while end - at >= 4:
            (length,) = _LENGTH(view, at)
            if not 0 <= length <= self._max_frame:
                raise MalformedFrame(f"frame of {length} bytes: between 0 and {self._max_frame} are allowed")
            body = at + 4
            stop = body + length
            if stop > end:
                break
            frames.append(view[body:stop])
            if stop == end:
                self._start = self._end = 0
                return frames
            at = stop
        self._start = at
        return frames

    async def _make_room(self) -> None:
        """Make room for the rest of a frame: move the received part to the front of the buffer, and enlarge the buffer
        as more of the frame arrives.
        """
        have = self._end - self._start
        need = 4 + _LENGTH(self._view, self._start)[0] if have >= 4 else 4
        if self._start + need <= len(self._view):
            return
        part = self._view[self._start : self._end]
        if need > len(self._view) and (have == len(self._view) or len(self._view) < LARGE):
            await self._grow(max(LARGE, min(need, 2 * len(self._view))))
        elif not self._start:
            return  # the part is in front already, and the buffer still has room
        self._view[:have] = part
        self._start, self._end = 0, have

    async def _grow(self, size: int) -> None:
        more = size - len(self._view)
        with self._env.timeout(self._patience_s):
            while not self._memory.take(more):
                await self._memory.wait_freed()
            self._view = memoryview(bytearray(size))
            return
        raise LinkClosed("receive memory is exhausted")

    def shrink_if_idle(self) -> None:
        """Give an enlarged buffer back while nothing is in it."""
        if not self._end:
            self.close()

    def close(self) -> None:
        """Return this connection's share of the receive memory."""
        extra = len(self._view) - SMALL
        if extra > 0:
            self._memory.give(extra)
            self._view = memoryview(bytearray(SMALL))
            self._start = self._end = 0
