"""Implements the event loop of the relay that parses Kafka requests: callbacks for ready sockets, and timers. It has
one thread, and no task per connection.

Bytes that arrive are read and sent on in the same call, so they take one wake-up. An earlier relay with trio had one
task for each direction of a connection, and one for each socket that is written to. It took five times the CPU time. On
a busy machine its links then had the longest round trips of all, so a run measured the relay instead of the brokers.
"""

from __future__ import annotations

import errno
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import cast

BUFFER = 256 * 1024
MOST = 4 * 1024 * 1024
"""Limits the bytes buffered in one direction of a connection; at the limit nothing more is read from its sender."""
RESET = struct.pack("ii", 1, 0)
"""Is the SO_LINGER value that makes a close a reset."""
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
UNDER_WAY = (0, errno.EINPROGRESS)


class RelayEventLoop:
    """Calls functions when their socket is ready or their time has come. All times are in seconds."""

    def __init__(self) -> None:
        self._look = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.buffer = memoryview(bytearray(BUFFER))
        """Is the one buffer into which all arriving bytes are received."""

    def watch(self, end: socket.socket, events: int, ready: Callable[[int], None]) -> None:
        """Call `ready(events)` whenever the socket is ready. No events: the socket is not watched."""
        # It is closed already, and a selector knows no such socket.
        if end.fileno() < 0:
            return
        known = end in self._look.get_map()
        if not events:
            if known:
                self._look.unregister(end)
        elif known:
            self._look.modify(end, events, ready)
        else:
            self._look.register(end, events, ready)

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        """Call `act` once, `delay_s` seconds from now."""
        heappush(self._due, (time.monotonic() + delay_s, next(self._order), act))

    def listen(self, host: str, port: int, accepted: Callable[[socket.socket], None]) -> None:
        """Accept connections at an address, for as long as the loop runs."""
        listener = socket.create_server((host, port), backlog=512)
        listener.setblocking(False)

        def ready(_: int) -> None:
            while True:
                try:
                    end, _address = listener.accept()
                except OSError:
                    return
                end.setblocking(False)
                accepted(end)

        self.watch(listener, READ, ready)

    def run(self) -> None:
        """Run for ever: the loop never ends by itself."""
        while True:
            self.turn()

    def close(self) -> None:
        """Close every socket that is watched."""
        for key in list(self._look.get_map().values()):
            cast(socket.socket, key.fileobj).close()
        self._look.close()

    def turn(self) -> None:
        """Wait until a socket is ready or a timer is due, and call the functions that wait for them."""
        wait_s = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
        for key, events in self._look.select(wait_s):
            # An earlier call of this turn may have closed the socket, and another one may have its number by now.
            if self._look.get_map().get(key.fd) is key:
                key.data(events)
        while self._due and self._due[0][0] <= time.monotonic():
            heappop(self._due)[2]()


class ConnectionEnd:
    """Represents one socket of a relayed connection. Bytes are sent in order; a piece may have an earliest time at
    which it is sent.
    """

    def __init__(self, loop: RelayEventLoop, end: socket.socket) -> None:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop, self._end = loop, end
        self._queue: deque[tuple[float, bytes | memoryview | None]] = deque()
        self._events = 0
        self._timed = self._closed = False
        self.held = 0
        """Counts the bytes that wait to be sent."""
        self.finished = False
        """Is True once all bytes were sent, and the end of the stream after them."""
        self.arrived: Callable[[bytes], None] = lambda data: None
        """Is called with bytes that arrive, and with empty bytes at the end of the stream."""
        self.sent: Callable[[], None] = lambda: None
        """Is called when waiting bytes were sent. Bytes that are not yet due may still wait."""
        self.broken: Callable[[], None] = lambda: None
        """Is called when the connection was reset."""

    def read(self, wanted: bool) -> None:
        """Begin to read arriving bytes if `wanted`; otherwise stop reading, so that the sender has to wait."""
        self._want(self._events | READ if wanted else self._events & ~READ)

    def put(self, data: bytes | None, later_s: float = 0.0) -> None:
        """Send bytes, behind those that wait already, and not before `later_s` seconds from now. None ends the stream.
        """
        if data and not self._queue and later_s <= 0:
            sent = self._send(data)
            if sent == len(data):
                return
            data = data[sent:]
        self._queue.append((time.monotonic() + later_s if later_s > 0 else 0.0, data))
        self.held += len(data or b"")
        self._flush()

    def close(self, *, reset: bool = False) -> None:
        """Close the socket. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._want(0)
        if reset:
            try:
                self._end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            except OSError:
                pass  # it is closed already
        self._end.close()

    def _want(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._loop.watch(self._end, events, self._ready)

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if events & READ and not self._closed:
            try:
                size = self._end.recv_into(self._loop.buffer)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.broken()
                return
            # At the end of the stream a socket stays ready for ever, and would keep the loop busy.
            if not size:
                self.read(False)
            self.arrived(bytes(self._loop.buffer[:size]))

    def _send(self, data: bytes | memoryview) -> int:
        if self._closed:
            return len(data)
        try:
            return self._end.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.broken()
            return len(data)

    def _flush(self) -> None:
        """Send the bytes that are due."""
        waited = bool(self._queue)
        while self._queue and not self._closed:
            at, data = self._queue[0]
            if at and at > (now := time.monotonic()):
                if not self._timed:
                    self._timed = True
                    self._loop.later(at - now, self._time_has_come)
                break
            if data is None:
                self._queue.clear()
                self.finished = True
                try:
                    self._end.shutdown(socket.SHUT_WR)
                except OSError:
                    self.broken()
                    return
                break
            sent = self._send(data)
            self.held -= sent
            if sent < len(data):
                self._queue[0] = (at, memoryview(data)[sent:])
                self._want(self._events | WRITE)
                return
            self._queue.popleft()
        if not self._closed:
            self._want(self._events & ~WRITE)
            if waited:
                self.sent()

    def _time_has_come(self) -> None:
        self._timed = False
        self._flush()


def connect(
    loop: RelayEventLoop, to: tuple[str, int], within_s: float, done: Callable[[socket.socket | None], None]
) -> None:
    """Open a connection, and call `done` with it, or with None if no answer comes in time."""
    # The address is a number: nothing is looked up.
    family, kind, protocol, _, address = socket.getaddrinfo(*to, type=socket.SOCK_STREAM)[0]
    end = socket.socket(family, kind, protocol)
    end.setblocking(False)
    waiting = [True]

    def settled(_: int = 0, *, late: bool = False) -> None:
        # Answer and time-out both call this, and only the first of them counts.
        if not waiting:
            return
        waiting.clear()
        loop.watch(end, 0, settled)
        if late or end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            end.close()
            done(None)
        else:
            done(end)

    if end.connect_ex(address) in UNDER_WAY:
        loop.watch(end, WRITE, settled)
        loop.later(within_s, lambda: settled(late=True))
    else:
        waiting.clear()
        end.close()
        done(None)
