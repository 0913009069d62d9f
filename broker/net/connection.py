"""Keeps the responses of each connection in the order of its requests, and lets a request delay the requests after it
(`Connection.hold`).

Every request gets a `PendingResponse` in the queue of its connection on arrival. The responses may be filled in any
order and by any task (the producer's task answers a parked follower fetch, the follower's task answers the producer),
and the task that fills the first response of the queue sends it. No task, channel, event or cancel scope exists per
request; only a connection with a full socket starts a task.
"""

from __future__ import annotations

from collections import deque
from itertools import islice, takewhile
from math import inf
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol

import trio

from squall.broker.env import LinkClosed
from squall.broker.log.slices import FileSlice

if TYPE_CHECKING:
    from collections.abc import Callable

    from squall.broker.env import Transport
    from squall.broker.net.request_metrics import RequestTiming

_SIZE_CORRELATION = Struct(">ii").pack
_SIZE_CORRELATION_TAGS = Struct(">iib").pack
_JOIN_LIMIT = 16 << 10
"""Limits the size, in bytes, of a first chunk that is joined with the response's header. A larger chunk leaves after
the header.
"""
_MOST_PIECES = 1024
"""Limits the pieces that leave in one system call: IOV_MAX of Linux."""
_COPY_LIMIT = 256 << 10
"""Limits the size of a file slice that is read into memory and sent together with its neighbours, in one system call;
`sendfile` needs two or three. Up to this size copying costs less (a fifth of the brokers' CPU with batches of 100 KB),
beyond it more.
"""
_COPIED_AHEAD = 512 << 10
"""Gives the unsent bytes of a connection beyond which no more file slices are read into memory, because a client that
does not read must not fill memory.
"""

Chunk = bytes | bytearray | memoryview | FileSlice


class ParkedRequest(Protocol):
    """Represents a request that waits, for new records for example. It is dropped if its connection ends."""

    def abandon(self) -> None:
        """Stop waiting, because the connection has ended. Do nothing if the request was answered."""


class PendingResponse:
    """Keeps the place of one response in its connection's order. `chunks` is None until the response is known."""

    __slots__ = ("chunks", "conn", "correlation_id", "flexible", "is_produce", "parked", "timer", "version")

    def __init__(self, conn: Connection, correlation_id: int, version: int, flexible: bool) -> None:
        self.conn, self.correlation_id, self.version, self.flexible = conn, correlation_id, version, flexible
        self.chunks: tuple[Chunk, ...] | None = None
        self.parked: ParkedRequest | None = None
        """Holds the request to abandon if the connection ends before the response, or None."""
        self.is_produce = False
        """Is True for the response to a Produce request with acks."""
        self.timer: RequestTiming | None = None
        """Measures the request if the node has metrics, else None."""

    def reply(self, body: list[Any] | bytes) -> None:
        """Fill in the response body: bytes, or chunks, of which some may be file slices. Do nothing if the response has
        a body already, or the connection is closed.
        """
        if self.chunks is not None or self.conn.closed:
            return
        if isinstance(body, bytes):
            size = len(body)
            head = self._head(size)
            self.chunks = (head + body,) if size < _JOIN_LIMIT else (head, body)
        else:
            size = 0
            for chunk in body:
                size += chunk.length if type(chunk) is FileSlice else len(chunk)
            head, first = self._head(size), body[0]
            small = type(first) is bytes and len(first) < _JOIN_LIMIT
            self.chunks = (head + first, *body[1:]) if small else (head, *body)
        if self.timer is not None:
            self.timer.end()
        self.conn.ready(len(head) + size)

    def _head(self, size: int) -> bytes:
        """Return the response's header. `size` is the length of the body in bytes."""
        if self.flexible:
            return _SIZE_CORRELATION_TAGS(size + 5, self.correlation_id, 0)
        return _SIZE_CORRELATION(size + 4, self.correlation_id)

    def drop(self) -> None:
        """Send no response for this request (acks=0)."""
        self.chunks = ()
        if self.timer is not None:
            self.timer.end()
        self.conn.ready(0)


class Connection:
    """Queues and sends the responses of one link. It also holds what the server knows of the peer: client id, last
    activity.
    """

    def __init__(
        self, link: Transport, listener: str, mark_dirty: Callable[[Connection], None], start_task: Callable[..., None]
    ) -> None:
        self.link, self.listener = link, listener
        self.slots: deque[PendingResponse] = deque()
        self.closed = False
        self.client_id: str | None = None
        self.last_active_ms = 0
        self.last_follower_response_s = -inf
        """Gives the time, in s of the node's clock, at which a follower's Fetch was last answered; -inf before the
        first. The follower's next Fetch proves that the follower still followed this leader at that time.
        """
        self.round = -1
        """Gives the value of `FairScheduler.rounds` when requests of this connection were last served; -1 before the
        first time.
        """
        self.on_close: list[Callable[[], None]] = []
        self._out: deque[Chunk] = deque()
        self._out_bytes = 0
        self._out_in_files = 0
        """Counts the queued bytes that are not in memory, because they are file slices for `sendfile`."""
        self._answered_bytes = 0
        """Counts the bytes of the known responses in `slots`: they wait for the next flush, or for an earlier response.
        """
        self._blocked = False
        self._mark_dirty, self._start_task = mark_dirty, start_task
        self._uncongested: trio.Event | None = None
        self.held: trio.Event | None = None
        """Is not None while no further request may be taken from this connection. The event is set at the release."""
        self._is_held_when_closed = False

    def hold(self, *, when_closed: bool = False) -> None:
        """Take no further request of this connection until `release`. The current request must wait before it takes
        effect, and requests of one connection take effect in their order.

        With `when_closed` the request takes effect even if the connection ends. Until `release`, such a connection
        still counts as open, and its receive buffer as memory in use.
        """
        assert self.held is None
        self.held = trio.Event()
        self._is_held_when_closed = when_closed

    def release(self) -> None:
        """Take requests again after `hold`: the request that had to wait has taken effect, or never will. Do nothing if
        `hold` was not called.
        """
        held, self.held = self.held, None
        self._is_held_when_closed = False
        if held is not None:
            held.set()

    def ready(self, size: int) -> None:
        """Register that a response of `size` bytes has been filled in. `Server.settle` sends it after the current burst
        of requests.
        """
        self._answered_bytes += size
        self._mark_dirty(self)

    def flush(self) -> None:
        """Send the responses that are known and next in order. A task sends the bytes that the socket does not take at
        once.
        """
        slots, out, before = self.slots, self._out, self._out_bytes
        while slots and (chunks := slots[0].chunks) is not None:
            slots.popleft()
            for chunk in chunks:
                if type(chunk) is FileSlice:
                    self._queue_slice(chunk)
                elif chunk:  # Skip empty chunks: `send` could never report one as sent.
                    out.append(chunk)
                    self._out_bytes += len(chunk)
        self._answered_bytes -= self._out_bytes - before
        # While the socket is full, `_drain` sends what is queued here.
        if out and not self._blocked and not self.closed:
            self._send()
        if self._uncongested is not None:
            self._wake_uncongested()

    def _queue_slice(self, chunk: FileSlice) -> None:
        """Queue a file slice, and read it at once if it is small. If the read fails, the connection ends, because the
        response's length has already been announced.
        """
        queued: Chunk = chunk
        if chunk.length <= _COPY_LIMIT and self._out_bytes <= _COPIED_AHEAD:
            try:
                queued = chunk.read()
            except OSError:
                queued = b""
            if len(queued) != chunk.length:
                self.close()
                return
        if chunk.length:
            self._out.append(queued)
            self._out_bytes += chunk.length
            if queued is chunk:
                self._out_in_files += chunk.length

    def _send(self) -> None:
        out, link = self._out, self.link
        try:
            while out:
                head = out[0]
                if type(head) is FileSlice:
                    asked = head.length
                    sent = link.send_file(head.file, head.position, asked)
                elif len(out) == 1:
                    asked = self._out_bytes
                    sent = link.send((head,))  # type: ignore[arg-type]
                else:
                    # Up to the next file slice, which `sendfile` sends. With `more` the kernel keeps a part-full
                    # packet for it.
                    pieces = list(islice(takewhile(_in_memory, out), _MOST_PIECES))
                    asked = sum(map(len, pieces))
                    sent = link.send(pieces, more=len(out) > len(pieces))  # type: ignore[arg-type]
                if sent == self._out_bytes:
                    out.clear()
                    self._out_bytes = self._out_in_files = 0
                    return
                self._taken(sent)
                if sent < asked:
                    self._blocked = True
                    self._start_task(self._drain)
                    return
        except OSError:
            self.close()

    def _taken(self, count: int) -> None:
        """Remove the first `count` bytes, which the socket has accepted, from the queued output. `_send` calls this
        only if the socket has not accepted all of the output.
        """
        out = self._out
        self._out_bytes -= count
        while count:
            head = out.popleft()
            size = head.length if type(head) is FileSlice else len(head)
            if type(head) is FileSlice:
                self._out_in_files -= min(size, count)
            if size <= count:
                count -= size
                continue
            if type(head) is FileSlice:
                out.appendleft(FileSlice(head.file, head.position + count, size - count))
            else:
                out.appendleft(memoryview(head)[count:])  # type: ignore[arg-type]
            return

    async def _drain(self) -> None:
        try:
            while self._out and not self.closed:
                await self.link.wait_writable()
                self._blocked = False
                self.flush()
                if self._blocked:
                    return  # `flush` has started another task for the rest
        except (LinkClosed, OSError):
            self.close()

    def unanswered_produces(self) -> int:
        """Return the number of Produce requests with acks whose responses have not left."""
        return sum(slot.is_produce for slot in self.slots)

    @property
    def kept_bytes(self) -> int:
        """Returns an upper bound of the memory, in bytes, that unsent responses take. File slices that are next to be
        sent are not counted, because they stay in their files. File slices that wait for an earlier response are
        counted.
        """
        return self._out_bytes - self._out_in_files + self._answered_bytes

    def congested(self, max_requests: int, max_bytes: int) -> bool:
        """Return whether more responses are parked or unsent than the limits allow. The server then stops reading
        requests.
        """
        return not self.closed and (
            len(self.slots) > max_requests or self._out_bytes + self._answered_bytes > max_bytes
        )

    async def wait_uncongested(self, max_requests: int, max_bytes: int) -> None:
        """Wait until at most `max_requests` responses are outstanding and at most `max_bytes` of known responses are
        unsent, or until the connection closes.
        """
        while self.congested(max_requests, max_bytes):
            self._uncongested = trio.Event()
            await self._uncongested.wait()

    def _wake_uncongested(self) -> None:
        if self._uncongested is not None:
            self._uncongested.set()
            self._uncongested = None

    def abort(self) -> None:
        """Close by a reset, so that responses in the kernel's buffer do not arrive. Idempotent."""
        if not self.closed:
            self.link.abort()
            self.close()

    def close(self) -> None:
        """End the connection and drop its responses. Idempotent."""
        if self.closed:
            return
        self.closed = True
        for slot in self.slots:
            if slot.parked is not None:
                slot.parked.abandon()
        self.slots.clear()
        self._out.clear()
        self._out_bytes = self._out_in_files = self._answered_bytes = 0
        self.link.close()
        for callback in self.on_close:
            callback()
        self.on_close.clear()
        self._wake_uncongested()
        if not self._is_held_when_closed:
            self.release()


def _in_memory(chunk: Chunk) -> bool:
    return type(chunk) is not FileSlice
