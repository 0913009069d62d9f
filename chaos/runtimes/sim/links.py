"""Represents connections: two ends, a stream of bytes in each direction, and the effects of link faults on the bytes.

A stream behaves as TCP: bytes stay in order, and none is lost unless the connection ends. So a lost packet only delays
bytes, and a short partition holds bytes and delivers them late. If one end dies, the other end gets a FIN, an RST or
nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import trio
from crc32c import crc32c
from trio._core._traps import WaitTaskRescheduled
from trio.lowlevel import current_task

from squall.broker.env import Buffer, File, LinkClosed, NodeDead
from squall.broker.overriding import override
from squall.chaos.runtimes.contract import CutMode, StreamDirection
from squall.chaos.runtimes.sim.kernel import ABORTED
from squall.chaos.runtimes.wire.conversation import FramedConnection, LinkFaultState

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.wires import SimLink

SHORT_READ = 0.02
"""Is the probability that a receive returns fewer bytes than there are: code that parses frames must not depend on how
bytes arrive.
"""


class TransportOwner(Protocol):
    """Represents the node or client (`SimEnv`) at one end of a connection. It suspends and wakes the tasks that wait
    there.
    """

    alive: bool
    paused: bool
    links: dict[int, SimTransport]
    gate: Callable[[str, str], None]

    def rest(self, message: WaitTaskRescheduled) -> Awaitable[Any]:
        """Suspend the current task until `wake` is called for it. message: trio's request to suspend a task; it holds
        the function that trio calls if the task is cancelled.
        """

    def unhold(self, task: trio.lowlevel.Task) -> None:
        """Forget a task that was cancelled. If it had been woken during a pause, the end of the pause must not wake it
        again.
        """

    async def wait(self, register: Callable[[trio.lowlevel.Task], None], forget: Callable[[], None]) -> None:
        """Suspend the task until `wake` is called for it: `register` gets the task. If the task is cancelled first,
        `forget` is called.
        """

    def wake(self, task: trio.lowlevel.Task) -> None:
        """Let a suspended task continue: now, or when the pause ends if the node or client is paused."""


class SimTransport:
    """Represents one end of a simulated connection."""

    __slots__ = ("_eof", "_in", "_parked", "_reader", "_reading", "_reset", "_writer", "closed", "env", "incoming",
                 "out", "peer", "serial")  # fmt: skip

    def __init__(self, env: TransportOwner, peer: str, serial: int) -> None:
        self.env, self.peer, self.serial = env, peer, serial
        self.out: OneWayStream
        self.incoming: OneWayStream
        self.closed = False
        self._in = b""
        self._eof = self._reset = False
        self._reader: trio.lowlevel.Task | None = None
        self._parked: trio.lowlevel.Task | None = None
        """Is the task that waits until this end can be read, or the last task that did."""
        self._reading = WaitTaskRescheduled(self._unread)
        self._writer: trio.lowlevel.Task | None = None
        env.links[serial] = self

    def recv_into(self, view: memoryview) -> int | None:
        """Receive into `view`. Returns the number of bytes; 0 if the peer has closed its end; None if nothing is there
        now. Sometimes it receives fewer bytes than there are (`SHORT_READ`).
        """
        if self.closed or self._reset or not self.env.alive:
            self._refuse()
        data, incoming = self._in, self.incoming
        if not data:
            return 0 if self._eof else None
        count = len(data) if len(data) < len(view) else len(view)
        if count > 1 and incoming.rng.random() < SHORT_READ:
            count = incoming.rng.randrange(1, count)
        view[:count] = data[:count]
        self._in = data[count:]
        incoming.taken(count)
        return count

    def send(self, pieces: Sequence[Buffer], *, more: bool = False) -> int:
        """Send the bytes that fit into the window now. Returns the number of bytes taken. `more` (another send follows)
        has no effect in a simulation.
        """
        self.env.gate("send", self.peer)
        if self.closed or self._reset:
            self._refuse()
        data = b"".join(pieces)
        room = self.out.window - self.out.held
        if room < len(data):
            data = data[: max(0, room)]
        if data:
            self.out.push(data)
        return len(data)

    def send_file(self, file: File, offset: int, length: int) -> int:
        """Send part of a file, as much as fits now. Returns the number of bytes taken."""
        room = self.out.window - self.out.held
        # On a closed or reset connection `send` must raise below: for a result of 0 the caller would wait for room.
        if length <= 0 or (room <= 0 and not self._reset and not self.closed):
            return 0
        data = file.pread(min(length, max(room, 1)), offset)
        # The response has announced more bytes than the file has, so the connection cannot carry another response.
        if not data:
            self.close()
            raise LinkClosed(f"connection with {self.peer} ended: the file being sent ends before byte {offset}")
        return self.send((data,))

    async def wait_readable(self) -> None:
        """Wait until there is something to receive, or the connection has ended."""
        if self.closed or not self.env.alive:
            self._check_open()
        if not (self._in or self._eof or self._reset):
            assert self._reader is None, "two tasks wait to read one connection"
            self._reader = self._parked = current_task()
            await self.env.rest(self._reading)
        # There is something to read, but a paused node must not continue: `wake` holds the task until `resume`.
        elif self.env.paused:
            await self.env.wait(self.env.wake, lambda: None)
        else:
            await trio.lowlevel.checkpoint()
        if self.closed:
            self._check_open()

    async def wait_writable(self) -> None:
        """Wait until something can be sent, or the connection has ended."""
        self._check_open()
        if (self.out.held < self.out.window or self._reset) and not self.env.paused:
            await trio.lowlevel.checkpoint()
        else:
            await self.env.wait(self._written_by, self._unwritten)
        self._check_open()

    def close(self) -> None:
        """End the connection. Idempotent."""
        if not self.closed and self.env.alive:
            self.finish()
            self._wake()

    def abort(self) -> None:
        """End the connection by a reset: the other end gets a reset, and bytes in transit to it are dropped.
        Idempotent.
        """
        if not self.closed and self.env.alive:
            self.finish(reset=True)
            self._wake()

    # ------------------------------------------------------------------ the world's side

    def finish(self, *, reset: bool = False, silent: bool = False) -> None:
        """Close this end. reset: the peer gets a reset in place of the end of the stream; silent: the peer gets no
        message, as when a machine loses power.
        """
        self.closed = True
        self.env.links.pop(self.serial, None)
        if not silent:
            self.out.end(reset=reset)

    def broken(self) -> None:
        """Handle a reset from the peer: every later call on this end fails."""
        if not self.closed:
            self._reset = True
            self._in = b""
            self.incoming.clear()
            self.out.clear()
            self._wake()

    def arrived(self, data: bytes | None) -> None:
        """Accept bytes that arrive from the peer, or the end of the stream (None)."""
        if data is None:
            self._eof = True
        else:
            self._in = self._in + data if self._in else data
        if self._reader is not None:
            task, self._reader = self._reader, None
            self.env.wake(task)

    def wake_writer(self) -> None:
        """Wake a sender that waits for space at the receiver."""
        if self._writer is not None:
            task, self._writer = self._writer, None
            self.env.wake(task)

    @property
    def was_reset(self) -> bool:
        """Is True if a reset arrived."""
        return self._reset

    def _wake(self) -> None:
        for task in (self._reader, self._writer):
            if task is not None:
                self.env.wake(task)
        self._reader = self._writer = None

    def _refuse(self) -> NoReturn:
        if not self.env.alive:
            raise NodeDead
        raise LinkClosed(f"connection with {self.peer} {'was reset' if self._reset else 'is closed'}")

    def _check_open(self) -> None:
        if not self.env.alive:
            raise NodeDead
        if self.closed:
            raise LinkClosed(f"connection with {self.peer} is closed")

    def _unread(self, _: Any) -> trio.lowlevel.Abort:
        self._reader = None
        assert self._parked is not None
        self.env.unhold(self._parked)
        return ABORTED

    def _written_by(self, task: trio.lowlevel.Task) -> None:
        assert self._writer is None, "two tasks wait to write to one connection"
        if self.out.held < self.out.window or self._reset:
            self.env.wake(task)
        else:
            self._writer = task

    def _unwritten(self) -> None:
        self._writer = None


class OneWayStream:
    """Carries the bytes of one direction of a connection from `source` to `sink`: in order, after the link's delay, and
    subject to the link's faults.
    """

    __slots__ = ("_due", "_last", "_passed", "_queue", "_scheduled", "connection", "held", "push", "rng", "sink",
                 "source", "stream", "swallowed", "window", "wire")  # fmt: skip

    def __init__(
        self,
        connection: SimConnection,
        wire: SimLink,
        stream: StreamDirection,
        source: SimTransport,
        sink: SimTransport,
    ) -> None:
        self.connection, self.wire, self.stream, self.source, self.sink = connection, wire, stream, source, sink
        self.rng, self.window = wire.rng, wire.world.window
        self.held = 0
        """Counts the bytes in transit and those that the receiver has not read yet."""
        self.swallowed = False
        """Is True if a cut of mode DROP has swallowed bytes of this stream."""
        self._queue: deque[tuple[float, bytes | None, float]] = deque()
        """Holds the bytes in transit, as (virtual time of arrival, bytes, 0.0); None for bytes is the end of the
        stream. For a lost packet the time is that of its retransmission, and the third value is the time in s from
        there to the next one, should that be lost too.
        """
        self._scheduled = False
        self._last = self._due = 0.0
        self._passed = 0
        source.out, sink.incoming = self, self
        self.push: Callable[[bytes], object] = self.put
        """Is called with the bytes that the source sends. It is `put`, unless frames are parsed: then it is the method
        of the connection that applies protocol faults and calls `put`.
        """
        if connection.followed:
            self.push = connection.asked if stream is StreamDirection.THERE else connection.answered

    def put(self, data: bytes | None, later_s: float = 0.0) -> float:
        """Send bytes to which protocol faults have been applied already; None ends the stream. later_s: a delay in
        addition to that of the link. Returns the virtual time, in s, at which the bytes arrive if no cut holds or
        swallows them.
        """
        wire = self.wire
        now = wire.kernel.now
        if not wire.faulty:
            at = now + wire.base_s() + later_s
            # Each piece draws a latency of its own, but bytes never overtake each other, as in TCP.
            if at < self._last:
                at = self._last
            else:
                self._last = at
            if data is not None:
                self.held += len(data)
            self._queue.append((at, data, 0.0))
            if not self._scheduled:
                self._scheduled = True
                wire.kernel.at(self._queue[0][0] - now, self.pump)
            return at
        if wire.drops(self.stream):
            self.swallowed = True
            return now
        took_s, self._due = wire.takes(self.stream, 0 if data is None else len(data), self._due)
        rto_s = wire.lost(self.stream)
        at = self._last = max(self._last, now + took_s + rto_s + later_s)
        for piece, gap_s in wire.pieces(self.stream, data):
            self._last = at = at + gap_s
            self.held += 0 if piece is None else len(piece)
            self._queue.append((at, piece, 2 * rto_s))
            rto_s = 0.0
        self._last += wire.pause_s(self.stream)
        if not self._scheduled:
            self._schedule()
        if data is not None and (limit := wire.limit(self.stream)) is not None:
            self._passed += len(data)
            if self._passed > limit:
                self.connection.reset()
        return at

    def end(self, *, reset: bool) -> None:
        """End the stream, because the source closed its end. reset: the peer gets a reset, and bytes in transit are
        dropped; without it, the peer gets these bytes, then the end of the stream.
        """
        # A cut stops a reset as it stops bytes. What the peer then sees of the end is decided in `put`.
        if reset and not self.wire.silent:
            self.clear()
            self.wire.kernel.at(self.wire.base_s(), self.sink.broken)
            self.connection.over()
        else:
            self.connection.ended(self.stream)
            self.put(None, self.wire.slow_close_s(self.stream) + self.connection.lingers_s(self.stream))
            if self.sink.closed:
                self.connection.over()

    def clear(self) -> None:
        """Drop all bytes in transit."""
        self._queue.clear()
        self.held = 0

    def taken(self, count: int) -> None:
        """Free the space of `count` bytes in the window, because the receiver has read them. Wake the sender if it
        waits for space.
        """
        held = self.held
        self.held = left = held - count if held > count else 0
        if left < self.window <= held:
            self.source.wake_writer()

    def pump(self) -> None:
        """Deliver the bytes that are due."""
        self._scheduled = False
        queue, wire = self._queue, self.wire
        if not queue:
            return
        if wire.faulty and wire.holds(self.stream):
            return  # healing the cut pumps again
        due, data, rto_s = queue[0]
        if due > wire.kernel.now:
            self._schedule()
            return
        # Each retransmission is drawn when it is sent, so that none is lost to a fault that has ended.
        if rto_s and wire.faulty and wire.lost(self.stream):
            queue[0] = wire.kernel.now + rto_s, data, 2 * rto_s
            self._schedule()
            return
        queue.popleft()
        sink = self.sink
        if data is not None:
            wire.world.delivered(len(data), crc32c(data))
        if not sink.closed:
            sink.arrived(data)
        elif data is not None and not self.source.closed and sink.env.alive:
            wire.kernel.at(wire.base_s(), self.source.broken)  # RST: nobody is there any more
        if queue and not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        kernel = self.wire.kernel
        kernel.at(self._queue[0][0] - kernel.now, self.pump)


class SimConnection(FramedConnection):
    """Represents one connection over a link: its two directions, and the requests and responses in them."""

    def __init__(self, wire: SimLink, serial: int, a: SimTransport, b: SimTransport) -> None:
        super().__init__()
        self.wire, self.serial = wire, serial
        self.a, self.b = a, b
        self.followed = wire.world.frames_matter
        self.there = OneWayStream(self, wire, StreamDirection.THERE, a, b)
        self.back = OneWayStream(self, wire, StreamDirection.BACK, b, a)

    @override
    def framed(self) -> bool:
        return bool(self.wire.frame_faults)

    @override
    def hit(self, stream: StreamDirection, api: int) -> LinkFaultState | None:
        return self.wire.hit(stream, api)

    @override
    def put(self, stream: StreamDirection, data: bytes, later_s: float) -> None:
        (self.there if stream is StreamDirection.THERE else self.back).put(data, later_s)

    @override
    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        self.wire.kernel.at(delay_s, self._if_there, act)

    @override
    def now_ns(self) -> int:
        return self.wire.world.now_ns()

    def _if_there(self, act: Callable[[], None]) -> None:
        if self.wire.connections.get(self.serial) is self:
            act()

    @override
    def note(self, stream: StreamDirection, api: int, correlation_id: int, size: int, what: str) -> None:
        if self.wire.world.messages is not None:
            self.wire.note(stream, api, correlation_id, size, what)

    def reset(self) -> None:
        """Reset both ends at once."""
        for end in (self.a, self.b):
            end.broken()
        self.over()

    def healed(self, manner: CutMode) -> None:
        """Handle the removal of a Cut fault of mode `manner` from the link: deliver the bytes that the cut held back.
        If the mode is DROP and the cut swallowed bytes, reset the connection instead.
        """
        for flow in (self.there, self.back):
            if manner is CutMode.DROP and flow.swallowed:
                self.reset()
                return
            flow.pump()

    def over(self) -> None:
        """Remove the connection from its link: nothing more can happen on it."""
        self.wire.connections.pop(self.serial, None)
