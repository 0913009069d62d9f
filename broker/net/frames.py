"""Reads length-prefixed frames from a link: one `recv_into` per wake-up, into one buffer that is reused.

Growing buffers and joining pieces were measured to cost 30 to 45 % of throughput. So a connection keeps one buffer,
small at first, larger once a larger frame comes, and complete frames are handed out as views of it. A view is valid
until the next `burst`.

A frame's announced length is not trusted before its bytes arrive: the buffer doubles each time they have filled it.
Once such a frame is complete, its connection gets a large buffer. `ReceiveMemoryLimit` limits the memory of all
connections beyond their first small buffers (`queued.max.request.bytes`).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

import trio

from squall.broker.env import LinkClosed
from squall.broker.protocol.errors import MalformedFrame

if TYPE_CHECKING:
    from squall.broker.env import Env, Transport

SMALL = 64 << 10
LARGE = 4 << 20
PERIOD_S = 0.5
"""Gives the time, in s, for which memory may be short before connections with slow frames are closed."""
SLOW = 512 << 10
"""Is the number of bytes of an unfinished frame that a connection must receive in `PERIOD_S` (0.5 s). If it receives
fewer, the frame counts as slow, and the connection may be closed when memory is short.
"""
_LENGTH = Struct(">i").unpack_from


class ReceiveMemoryLimit:
    """Limits the memory of enlarged receive buffers of all connections together, in bytes.

    If the memory is used up, empty buffers are given back at once. If memory is still short after `PERIOD_S`,
    connections are closed until there is enough for the waiting ones: first those with slow frames, the slowest first;
    then, if the waiting connections block one another, those that hold the most. A client that announces many bytes and
    sends few must not keep other clients from sending.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.holders: dict[FrameReader, None] = {}
        """Holds the readers with enlarged buffers."""
        self.wanting: dict[FrameReader, int] = {}
        """Maps each reader that waits for memory to the bytes it waits for."""
        self._freed = trio.Event()
        self._seen: dict[FrameReader, tuple[int, int]] = {}
        """Maps each reader with an enlarged buffer to its `progress` at the last check: how many times `burst` had
        returned frames, and how many bytes of the incomplete frame had arrived.
        """
        self._next_look_s = 0.0

    def take(self, amount: int) -> bool:
        """Claim `amount` more bytes. Return False if that would exceed the limit."""
        if amount > 0 and self.used + amount > self.limit:
            return False
        self.used += amount
        return True

    def give(self, amount: int) -> None:
        """Give back `amount` bytes, and wake the connections that wait for memory."""
        self.used -= amount
        assert self.used >= 0
        freed, self._freed = self._freed, trio.Event()
        freed.set()

    async def wait_freed(self) -> None:
        """Wait until another connection gives back memory."""
        await self._freed.wait()

    def wait_begins(self, frames: FrameReader, amount: int, now_s: float) -> None:
        """Register that `frames` waits for `amount` bytes. Other connections then give back empty buffers."""
        if not self.wanting:
            for holder in list(self.holders):
                holder.shrink_if_idle()
            self._look(now_s)
        self.wanting[frames] = amount

    def wait_ends(self, frames: FrameReader) -> None:
        """Register that `frames` no longer waits: it has got the memory, or its connection ends."""
        del self.wanting[frames]

    def _look(self, now_s: float) -> None:
        self._seen = {holder: holder.progress for holder in self.holders}
        self._next_look_s = now_s + PERIOD_S

    def end_slow_ones(self, now_s: float) -> None:
        """Close connections that hold memory without using it, if other connections wait for memory; at most once in
        `PERIOD_S`.
        """
        if now_s < self._next_look_s:
            return
        short = sum(self.wanting.values()) - (self.limit - self.used)
        for holder in [*self._slow(), *self._stuck()]:
            if short <= 0:
                break
            # A holder that was waiting itself frees its memory and no longer wants more.
            short -= holder.end() + self.wanting.get(holder, 0)
        self._look(now_s)

    def _slow(self) -> list[FrameReader]:
        """Return the readers that have received little of the same frame since the last check, the slowest first."""
        gained = {}
        for holder, (bursts, received) in self._seen.items():
            # If the server still uses the frames of a reader, the server is slow, not the client.
            if holder in self.holders and holder not in self.wanting and not holder.is_lent:
                now_bursts, now_received = holder.progress
                if now_bursts == bursts and received and now_received - received < SLOW:
                    gained[holder] = now_received - received
        return sorted(gained, key=gained.__getitem__)

    def _stuck(self) -> list[FrameReader]:
        """Return the waiting readers if together they hold more than half of the memory, else []. Each might then wait
        for memory that another one holds. The reader that holds the most comes first.
        """
        held = {holder: holder.enlarged_by for holder in self.wanting if holder in self.holders}
        if sum(held.values()) <= self.limit // 2:
            return []
        return sorted(held, key=held.__getitem__, reverse=True)


class FrameReader:
    """Splits the bytes that one link receives into frames, and keeps them in one buffer."""

    def __init__(
        self,
        env: Env,
        link: Transport,
        memory: ReceiveMemoryLimit,
        max_frame: int,
        *,
        patience_s: float = 10.0,
        grows_to: int = 0,
    ) -> None:
        """Create a reader with a small buffer. `patience_s` limits each wait for memory. The buffer doubles step by
        step for a large frame; with `grows_to` it gets that many bytes at once. Only connections that this node opens
        use `grows_to`, because a client could take much memory with it.
        """
        self._env, self._link, self._memory, self._max_frame = env, link, memory, max_frame
        self._patience_s, self._grows_to = patience_s, grows_to
        self._view = memoryview(bytearray(SMALL))
        self._start = self._end = 0
        """Are the first and the end position of the received bytes that form no complete frame yet; both are 0 if there
        are none.
        """
        self._bursts = 0
        self.is_lent = False
        """Is True while the caller may use views of the buffer."""
        self._grows = False
        """Is True if the buffer has grown for the frame that is being received."""
        self._ended = False

    @property
    def progress(self) -> tuple[int, int]:
        """Returns how many times `burst` has returned frames, and how many bytes of the next, still incomplete frame
        have arrived.
        """
        return self._bursts, self._end - self._start

    @property
    def enlarged_by(self) -> int:
        """Returns how many bytes of the receive memory this connection holds."""
        return len(self._view) - SMALL

    async def burst(self) -> list[memoryview]:
        """Wait for at least one complete frame, and return the bodies of all complete frames in order. The views are
        valid until the next call.

        Raises MalformedFrame for an impossible length; LinkClosed if the peer closes or memory stays short for
        `patience_s`.
        """
        link = self._link
        self.is_lent = False
        if self._grows or self._memory.wanting:
            self._fit()
        while True:
            # Without received bytes the buffer is used from its front again, and there is nothing to move.
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
                self._bursts += 1
                self.is_lent = True
                return frames

    def _fit(self) -> None:
        """Adapt the buffer's size before more bytes are received. If the buffer is empty and other connections wait for
        memory, shrink it to `SMALL`. If the last frame made the buffer grow, enlarge it to `LARGE`, unless memory is
        short.
        """
        if self._memory.wanting:
            self.shrink_if_idle()
        more = LARGE - len(self._view)
        if self._grows and more > 0 and not self._memory.wanting and self._memory.take(more):
            self._move_to(memoryview(bytearray(LARGE)))
        self._grows = False

    def _move_to(self, view: memoryview) -> None:
        have = self._end - self._start
        view[:have] = self._view[self._start : self._end]
        self._view, self._start, self._end = view, 0, have

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
            # The usual case: nothing is left over, so the next bytes come to the front and are not moved later.
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
        size = len(self._view)
        # It grows only when it is full: a client gets no memory by announcing a long frame (see the head).
        if need > size and (have == size or size < self._grows_to):
            await self._grow(max(self._grows_to, min(need, 2 * size), min(LARGE, 2 * size)))
        elif self._start:
            self._move_to(self._view)

    async def _grow(self, size: int) -> None:
        more = size - len(self._view)
        if not self._memory.take(more):
            await self._wait_for(more)
        self._move_to(memoryview(bytearray(size)))
        self._memory.holders[self] = None
        self._grows = True

    async def _wait_for(self, more: int) -> None:
        memory, env = self._memory, self._env
        memory.wait_begins(self, more, env.mono())
        try:
            with env.timeout(self._patience_s):
                while True:
                    with env.timeout(PERIOD_S):
                        while not memory.take(more):
                            await memory.wait_freed()
                            if self._ended:
                                raise LinkClosed("others wait for its receive memory")
                        return
                    memory.end_slow_ones(env.mono())
                    if self._ended:
                        raise LinkClosed("others wait for its receive memory")
        finally:
            memory.wait_ends(self)
        raise LinkClosed("receive memory is exhausted")

    def end(self) -> int:
        """Close the link, because other connections need its memory. Return how many bytes of memory become free."""
        given = self.enlarged_by
        self._ended = True
        self._link.close()
        self.close()
        return given

    def shrink_if_idle(self) -> None:
        """Give an enlarged buffer back if it is empty and no view of it is in use."""
        if not self._end and not self.is_lent:
            self.close()

    def close(self) -> None:
        """Give this connection's share of the receive memory back."""
        extra = self.enlarged_by
        if extra > 0:
            self._memory.holders.pop(self, None)
            self._memory.give(extra)
            self._view = memoryview(bytearray(SMALL))
            self._start = self._end = 0
