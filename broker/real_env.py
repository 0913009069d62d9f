"""Implements Env over the operating system: raw non-blocking sockets under trio's event loop, files by descriptor, real
clocks.

In the broker only this module, `real_files`, `real_clock` and the package `faulted` may import `time`, `socket`,
`random`, calls of `os` on files, and `trio.to_thread`. (`turn_meter` may read CPU time, because it only measures: no
decision depends on it.)

Sockets are not `trio.SocketStream`: that has no `recv_into`, and receiving into a buffer that is reused is worth a
third of the broker's throughput. Calls of `Transport` that move data never wait, and its waits never move data. So
receiving takes one `wait_readable` and one `recv_into`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from squall.broker.env import Buffer, Env, File, Fs, LinkClosed, Listener, Transport
from squall.broker.overriding import override
from squall.broker.real_clock import RealClock
from squall.broker.real_files import RealFile, RealFs
from squall.broker.signals import EventSignal

T = TypeVar("T")

BACKLOG = 1024
MAX_PIECES = 1024
"""Limits the buffers of one sendmsg call: IOV_MAX of Linux."""
ACCEPT_BACK_OFF_S = 0.1
OUT_OF_HANDLES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
COPY_CHUNK = 256 * 1024
RESET_ON_CLOSE = b"\x01\0\0\0\0\0\0\0"  # struct linger: on, 0 seconds

_wait_readable, _wait_writable = trio.lowlevel.wait_readable, trio.lowlevel.wait_writable


class RealTransport(Transport):
    """Represents one end of a TCP connection. Any error of the socket closes the connection and becomes LinkClosed."""

    __slots__ = ("_fd", "_sock", "peer")

    def __init__(self, sock: socket.socket, peer: str) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._fd = sock.fileno()
        self.peer = peer

    @override
    def recv_into(self, view: memoryview) -> int | None:
        assert view.nbytes, "an empty view cannot tell the end of the stream from nothing"
        try:
            return self._sock.recv_into(view)
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._ended(error) from error

    @override
    def send(self, pieces: Sequence[Buffer], *, more: bool = False) -> int:
        flags = socket.MSG_MORE if more else 0
        try:
            if len(pieces) == 1:
                return self._sock.send(pieces[0], flags)
            if len(pieces) > MAX_PIECES:
                return self._sock.sendmsg(pieces[:MAX_PIECES], [], flags | socket.MSG_MORE)
            return self._sock.sendmsg(pieces, [], flags)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._ended(error) from error

    @override
    def send_file(self, file: File, offset: int, length: int) -> int:
        """Send up to `length` bytes of `file` by sendfile(2), without copying them (mechanism L2 in
        docs/mechanisms.md). Return how many were sent. Raises LinkClosed also if the file has no byte at `offset`.
        """
        if length <= 0:
            return 0
        if not isinstance(file, RealFile):
            return self.send((file.pread(min(length, COPY_CHUNK), offset),))
        try:
            sent = os.sendfile(self._fd, file.fileno(), offset, length)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._ended(error) from error
        if sent == 0:
            raise self._ended(OSError(errno.EPIPE, f"the file being sent ends before byte {offset}"))
        return sent

    @override
    async def wait_readable(self) -> None:
        if self._fd < 0:
            raise self._gone()
        try:
            await _wait_readable(self._fd)
        except trio.ClosedResourceError:
            raise self._gone() from None

    @override
    async def wait_writable(self) -> None:
        if self._fd < 0:
            raise self._gone()
        try:
            await _wait_writable(self._fd)
        except trio.ClosedResourceError:
            raise self._gone() from None

    def _gone(self) -> LinkClosed:
        return LinkClosed(f"connection with {self.peer} is closed")

    @override
    def close(self) -> None:
        if self._fd >= 0:
            _close(self._sock)
            self._fd = -1

    @override
    def abort(self) -> None:
        if self._fd >= 0:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.close()

    def _ended(self, error: OSError) -> LinkClosed:
        self.close()
        return LinkClosed(error.errno, f"connection with {self.peer} ended: {error.strerror or error}")


class RealListener(Listener):
    """Represents a listening TCP socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.port: int = sock.getsockname()[1]

    @override
    async def accept(self) -> RealTransport:
        """Accept a connection. If the OS process has no descriptor left, wait a little and try again."""
        await trio.lowlevel.checkpoint()
        while True:
            try:
                sock, address = self._sock.accept()
                return RealTransport(sock, _host_port(address))
            except BlockingIOError:
                try:
                    await trio.lowlevel.wait_readable(self._sock)
                except trio.ClosedResourceError:
                    raise LinkClosed("the listener is closed") from None
            except OSError as error:
                if self._sock.fileno() < 0:
                    raise LinkClosed("the listener is closed") from None
                # Anything else (ECONNABORTED, EPROTO ...) is the fate of one connection that died in the queue.
                if error.errno in OUT_OF_HANDLES:
                    await trio.sleep(ACCEPT_BACK_OFF_S)

    @override
    def close(self) -> None:
        if self._sock.fileno() >= 0:
            _close(self._sock)


def _close(sock: socket.socket) -> None:
    with contextlib.suppress(RuntimeError):  # Outside of trio.run nobody can be waiting.
        trio.lowlevel.notify_closing(sock)
    sock.close()


def _host_port(address: tuple[Any, ...]) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _addresses(host: str, port: int, *, passive: bool = False) -> list[tuple[socket.AddressFamily, Any]]:
    """Return the addresses to try, best first. A name is looked up in a thread; a numeric address is used unchanged."""
    host = "0.0.0.0" if passive and not host else host
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, host)
            return [(family, (host, port))]
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError as wrong:  # a NUL, or a label of a name that is too long: a peer may have said so of itself
        raise OSError(errno.EINVAL, f"{host!r} is no host: {wrong}") from wrong
    return [(socket.AddressFamily(family), address) for family, _, _, _, address in found]


async def _connect(family: socket.AddressFamily, address: Any) -> RealTransport:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        code = sock.connect_ex(address)
        if code == errno.EINPROGRESS:
            await trio.lowlevel.wait_writable(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        else:
            await trio.lowlevel.checkpoint()
        if code:
            raise OSError(code, f"cannot connect to {_host_port(address)}: {os.strerror(code)}")
        if sock.getsockname() == sock.getpeername():
            # A dead server's port lies in the ephemeral range: the kernel let the socket connect to itself.
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens at {_host_port(address)}")
        return RealTransport(sock, _host_port(address))
    except BaseException:
        _close(sock)
        raise


class Trace:
    """Writes the node's trace: JSON lines, each handed to the kernel in one write, so that a kill tears none of them.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._encode = json.JSONEncoder(separators=(",", ":"), default=_jsonable).encode
        self._lost = 0

    def write(self, line: dict[str, Any]) -> None:
        """Write one line. If the disk is full the line is lost, and the next line says how many were lost."""
        if self._lost:
            line["lost_lines"] = self._lost
        data = (self._encode(line) + "\n").encode()
        try:
            if (written := os.write(self._fd, data)) < len(data):
                os.write(self._fd, data[written:])
            self._lost = 0
        except OSError:
            self._lost += 1

    def close(self) -> None:
        """Release the descriptor."""
        os.close(self._fd)


def _jsonable(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return value.hex()
    if isinstance(value, frozenset | set):
        return sorted(value)
    return str(value)


class RealEnv(Env):
    """Provides an Env over the operating system. `seed` makes the random source deterministic; None uses the system's
    entropy.

    `trace_path` names the file to which the trace is appended, as JSON lines. `clock_offset_path` names the file that
    skews the node's clocks (format: see `RealClock`); None means true time.
    """

    def __init__(
        self,
        name: str,
        incarnation: int = 1,
        seed: int | None = None,
        trace_path: str | None = None,
        clock_offset_path: str | None = None,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.rng = random.Random(seed)
        self.fs: Fs = RealFs()
        self._trace = None if trace_path is None else Trace(trace_path)
        self._clock = RealClock(clock_offset_path, say=partial(self.trace, "clock"))
        # Bound once: these two are asked several times for each request.
        self.wall_ms: Callable[[], int] = self._clock.wall_ms
        self.mono: Callable[[], float] = time.monotonic if clock_offset_path is None else self._clock.mono

    @override
    async def sleep(self, seconds: float) -> None:
        self.mono()  # looks for a new rate of the node's clock
        await trio.sleep(max(0.0, seconds) / self._clock.rate)

    @override
    def timeout(self, seconds: float) -> trio.CancelScope:
        self.mono()  # as in `sleep`
        return trio.move_on_after(max(0.0, seconds) / self._clock.rate)

    @override
    def signal(self) -> EventSignal:
        return EventSignal(self.timeout)

    @override
    async def listen(self, host: str, port: int) -> RealListener:
        """Listen on a TCP port. An empty host means every address of the machine."""
        family, address = (await _addresses(host, port, passive=True))[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind(address)
            sock.listen(BACKLOG)
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"cannot listen at {host}:{port}: {error.strerror}") from error
        return RealListener(sock)

    @override
    async def connect(self, host: str, port: int) -> RealTransport:
        """Open a connection. If a name has several addresses, they are tried in the resolver's order."""
        last: OSError | None = None
        for family, address in await _addresses(host, port):
            try:
                return await _connect(family, address)
            except OSError as error:
                last = error
        raise last or OSError(errno.EHOSTUNREACH, f"no address for {host}")

    @override
    async def cpu(self, fn: Callable[..., T], *args: Any) -> T:
        """Run `fn` in a worker thread. A cancelled caller still waits for the thread to end."""
        return await trio.to_thread.run_sync(fn, *args)

    @override
    def trace(self, event: str, **fields: Any) -> None:
        """Write a line of the trace. `t` is the machine's monotonic clock, whatever clock the node has, so that traces
        align.
        """
        if self._trace is not None:
            line = {"t": time.monotonic(), "w": self.wall_ms(), "n": self.name, "i": self.incarnation, "e": event}
            line.update(fields)
            self._trace.write(line)

    def close(self) -> None:
        """Release the trace file; later events are dropped. Idempotent."""
        if self._trace is not None:
            self._trace.close()
            self._trace = None
