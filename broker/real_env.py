"""Env over the operating system: raw non-blocking sockets under trio's event loop, files by descriptor, real clocks.

The only module of the broker that may import `time`, `socket`, `random`, `os` file calls and `trio.to_thread`. (The
clock of `turn_meter`, CPU time, decides nothing.)

Sockets are not `trio.SocketStream`: that has no `recv_into`, and receiving into a kept buffer is worth a third of the
broker's throughput. The contract of `Transport` (calls that move data never wait, waits never move data) makes each
wake-up one `wait_readable` and one `recv_into`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any, TypeVar

import trio

from squall.broker.env import Buffer, File, Fs, LinkClosed, Space
from squall.broker.real_clock import RealClock
from squall.broker.signals import EventSignal

T = TypeVar("T")

BACKLOG = 1024
MAX_PIECES = 1024
"""IOV_MAX of Linux: sendmsg takes no more pieces in one call."""
ACCEPT_BACK_OFF_S = 0.1
OUT_OF_HANDLES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
COPY_CHUNK = 256 * 1024
RESET_ON_CLOSE = b"\x01\0\0\0\0\0\0\0"  # struct linger: on, 0 seconds

RESERVED_FROM = 4 << 20
"""Bytes from which on a file has room set aside for its next appends: small ones would take more than they hold."""
RESERVED = 32 << 20
"""Bytes set aside at a time."""
SPARED = 1 << 30
"""Bytes that must be free on the disk for that: where room is short, it is whoever writes first who gets it."""
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE

_fdatasync = getattr(os, "fdatasync", os.fsync)
_wait_readable, _wait_writable = trio.lowlevel.wait_readable, trio.lowlevel.wait_writable


class RealFile:
    """A file by descriptor. One handle appends at a time: the end is remembered, not asked for at each append.

    Dropping the last reference closes it, so that a slice being sent keeps the bytes of a removed segment alive.
    """

    __slots__ = ("_end", "_fd", "_room")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._end = os.fstat(fd).st_size
        self._room: float = RESERVED_FROM
        """The end of what an append may fill before room is set aside again."""

    def fileno(self) -> int:
        """The descriptor, or -1 once closed."""
        return self._fd

    def pread(self, length: int, offset: int) -> bytes:
        """As `File.pread`; loops over short reads, which only the end of the file may cause."""
        data = os.pread(self._fd, length, offset)
        while data and len(data) < length:
            if not (rest := os.pread(self._fd, length - len(data), offset + len(data))):
                break
            data += rest
        return data

    def append(self, data: Buffer) -> int:
        """As `File.append`. On an error the file is as it was before: nothing is half appended."""
        start = self._end
        if start + len(data) > self._room:
            self._room = start + RESERVED if _set_aside(self._fd, start) else inf
        try:
            written = os.pwrite(self._fd, data, start)
            if written != len(data):
                self._write_rest(data, start, written)
        except OSError:
            self._cut_back(start)
            raise
        self._end = start + len(data)
        return start

    def pwrite(self, data: Buffer, offset: int) -> None:
        """As `File.pwrite`."""
        written = os.pwrite(self._fd, data, offset)
        if written != len(data):
            self._write_rest(data, offset, written)
        self._end = max(self._end, offset + len(data))

    def _write_rest(self, data: Buffer, offset: int, written: int) -> None:
        view = memoryview(data)
        while written < len(view):
            written += os.pwrite(self._fd, view[written:], offset + written)

    def _cut_back(self, size: int) -> None:
        # If this fails too, the end remembered is still `size`: the next append overwrites what is left there.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, size)
        self._room = RESERVED_FROM

    def truncate(self, size: int) -> None:
        """As `File.truncate`."""
        os.ftruncate(self._fd, size)
        self._end, self._room = size, RESERVED_FROM

    def seal(self) -> None:
        """As `File.seal`; also what an earlier process has set aside."""
        found = os.fstat(self._fd)
        if found.st_blocks * 512 > found.st_size + found.st_blksize:
            self._cut_back(found.st_size)

    def fsync(self) -> None:
        """As `File.fsync`: data and the size needed to read it back."""
        _fdatasync(self._fd)

    def size(self) -> int:
        """As `File.size`."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        """As `File.close`."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()


def _set_aside(fd: int, offset: int) -> bool:
    """Have the file system give a file its next blocks at once, which takes 6 to 8 % off the CPU of an append. Its size
    stays. False where that cannot be had, or where the disk is nearly full.
    """
    try:
        disk = os.fstatvfs(fd)
        if disk.f_bavail * disk.f_frsize < SPARED or _fallocate is None:
            return False
    except OSError:
        return False
    return bool(_fallocate(fd, _KEEP_SIZE, offset, RESERVED) == 0)


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """fallocate(2) of Linux, where offsets are 64 bits."""
    found = getattr(ctypes.CDLL(None), "fallocate", None)
    if found is None or ctypes.sizeof(ctypes.c_long) != 8:
        return None
    found.argtypes, found.restype = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long), ctypes.c_int
    call: Callable[[int, int, int, int], int] = found
    return call


_fallocate = _find_fallocate()


class RealFs:
    """Files of the operating system."""

    def open(self, path: str, *, create: bool = False, truncate: bool = False) -> RealFile:
        """As `Fs.open`."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0) | (os.O_TRUNC if truncate else 0)
        return RealFile(os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        """As `Fs.exists`."""
        return os.path.exists(path)

    def list(self, path: str) -> list[str]:
        """As `Fs.list`."""
        return sorted(os.listdir(path))

    def mkdirs(self, path: str) -> None:
        """As `Fs.mkdirs`."""
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """As `Fs.rename`."""
        os.replace(old, new)

    def remove(self, path: str) -> None:
        """As `Fs.remove`."""
        os.unlink(path)

    def remove_dir(self, path: str) -> None:
        """As `Fs.remove_dir`."""
        for folder, folders, files in os.walk(path, topdown=False):
            for name in files:
                os.unlink(os.path.join(folder, name))
            for name in folders:
                os.rmdir(os.path.join(folder, name))
        os.rmdir(path)

    def space(self, path: str) -> Space:
        """As `Fs.space`."""
        told = os.statvfs(path)
        return Space(told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize)

    def fsync_dir(self, path: str) -> None:
        """As `Fs.fsync_dir`."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class RealTransport:
    """One end of a TCP connection. Any error of the socket closes it and becomes LinkClosed."""

    __slots__ = ("_fd", "_sock", "peer")

    def __init__(self, sock: socket.socket, peer: str) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._fd = sock.fileno()
        self.peer = peer

    def recv_into(self, view: memoryview) -> int | None:
        """As `Transport.recv_into`."""
        assert view.nbytes, "an empty view cannot tell the end of the stream from nothing"
        try:
            return self._sock.recv_into(view)
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._ended(error) from error

    def send(self, pieces: Sequence[Buffer], *, more: bool = False) -> int:
        """As `Transport.send`."""
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

    def send_file(self, file: File, offset: int, length: int) -> int:
        """As `Transport.send_file` (L2). LinkClosed also if the file ends before the bytes that were announced."""
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

    async def wait_readable(self) -> None:
        """As `Transport.wait_readable`."""
        if self._fd < 0:
            raise self._gone()
        try:
            await _wait_readable(self._fd)
        except trio.ClosedResourceError:
            raise self._gone() from None

    async def wait_writable(self) -> None:
        """As `Transport.wait_writable`."""
        if self._fd < 0:
            raise self._gone()
        try:
            await _wait_writable(self._fd)
        except trio.ClosedResourceError:
            raise self._gone() from None

    def _gone(self) -> LinkClosed:
        return LinkClosed(f"connection with {self.peer} is closed")

    def close(self) -> None:
        """As `Transport.close`."""
        if self._fd >= 0:
            _close(self._sock)
            self._fd = -1

    def abort(self) -> None:
        """As `Transport.abort`."""
        if self._fd >= 0:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.close()

    def _ended(self, error: OSError) -> LinkClosed:
        self.close()
        return LinkClosed(error.errno, f"connection with {self.peer} ended: {error.strerror or error}")


class RealListener:
    """A listening TCP socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.port: int = sock.getsockname()[1]

    async def accept(self) -> RealTransport:
        """As `Listener.accept`. Waits a little and tries again where the process is out of descriptors."""
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

    def close(self) -> None:
        """As `Listener.close`."""
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
    """What to try, best first. A name is looked up in a thread; a numeric address is taken as it stands."""
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
    """The node's trace: JSON lines, each handed to the kernel in one write, so that a kill tears none of them."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._encode = json.JSONEncoder(separators=(",", ":"), default=_jsonable).encode
        self._lost = 0

    def write(self, line: dict[str, Any]) -> None:
        """Write one line. A full disk is the log's trouble to report: the next line says how many are lost."""
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


class RealEnv:
    """Env over the operating system. `seed` fixes the random source; without it the system's entropy does.

    `trace_path`: JSON lines file, appended to; `clock_offset_path`: see `RealClock`.
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

    async def sleep(self, seconds: float) -> None:
        """As `Env.sleep`."""
        self.mono()
        await trio.sleep(max(0.0, seconds) / self._clock.rate)

    def timeout(self, seconds: float) -> trio.CancelScope:
        """As `Env.timeout`."""
        self.mono()
        return trio.move_on_after(max(0.0, seconds) / self._clock.rate)

    def signal(self) -> EventSignal:
        """As `Env.signal`."""
        return EventSignal(self.timeout)

    async def listen(self, host: str, port: int) -> RealListener:
        """As `Env.listen`. An empty host means every address of the machine."""
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

    async def connect(self, host: str, port: int) -> RealTransport:
        """As `Env.connect`. A name with several addresses is tried in the resolver's order."""
        last: OSError | None = None
        for family, address in await _addresses(host, port):
            try:
                return await _connect(family, address)
            except OSError as error:
                last = error
        raise last or OSError(errno.EHOSTUNREACH, f"no address for {host}")

    async def cpu(self, fn: Callable[..., T], *args: Any) -> T:
        """As `Env.cpu`: in a worker thread. A cancelled caller still waits for the thread to end."""
        return await trio.to_thread.run_sync(fn, *args)

    def trace(self, event: str, **fields: Any) -> None:
        """As `Env.trace`. `t` is the machine's monotonic clock, whatever the node believes: traces align by it."""
        if self._trace is not None:
            line = {"t": time.monotonic(), "w": self.wall_ms(), "n": self.name, "i": self.incarnation, "e": event}
            line.update(fields)
            self._trace.write(line)

    def close(self) -> None:
        """Release the trace file; what is traced later goes nowhere. Idempotent."""
        if self._trace is not None:
            self._trace.close()
            self._trace = None
