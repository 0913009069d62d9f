"""The seam between node code and the world: clock, randomness, network, files.

Broker and client code never touches a real clock, socket, file, thread or random source. It is handed one `Env`
per node incarnation and asks that. `real_env` implements it over the operating system; the simulator implements it
over a seed. What is synchronous in the real world (page-cache writes, sends that fit into the socket's buffer) is
synchronous here; what waits there, waits here. Nurseries, events, cancel scopes and channels stay plain trio.

A simulated call may raise `NodeDead` at any point: the incarnation has been killed there. It derives from
BaseException so that no `except Exception` or `finally` can act for a dead node.
"""

# trio, and one event loop for each broker: its structured concurrency is deterministic under a virtual clock. asyncio
# was slower up to frames of 16 KB, also where frames are batched; threads are not deterministic.
#
# `Env.signal` is for a wait that a call or a time ends. In a simulation it costs one event; `Env.timeout` around an
# event costs three times as much, and a `Cancelled` when the time is over.

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import random

    import trio

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


class NodeDead(BaseException):
    """This incarnation was killed: raised by every call of its Env. Never caught by node code."""


class LinkClosed(OSError):
    """The connection ended: by the peer, by a fault, or because this side closed it."""


class File(Protocol):
    """An open file. Writes go to the page cache at once; only `fsync` makes them durable.

    Every call raises OSError as the operating system would (ENOSPC, EIO, ...).
    """

    __slots__ = ()

    def pread(self, length: int, offset: int) -> bytes:
        """Up to `length` bytes from byte `offset`; fewer at the end of the file."""

    def append(self, data: Buffer) -> int:
        """Write all of `data` at the end of the file. Returns the byte offset where it begins."""

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at byte `offset`, extending the file where needed."""

    def truncate(self, size: int) -> None:
        """Cut (or zero-extend) the file to `size` bytes."""

    def seal(self) -> None:
        """Nothing is appended for now: room on the disk that was set aside for it goes back. Changes no byte."""

    def fsync(self) -> None:
        """Make what was written before this call durable. Blocks: run it with `env.cpu` where latency matters."""

    def size(self) -> int:
        """Bytes in the file."""

    def close(self) -> None:
        """Release the handle. Idempotent."""


class DiskSpace(NamedTuple):
    """Holds the size of a volume, in bytes."""

    total: int
    usable: int
    """What this process may still write."""


class Fs(Protocol):
    """Files by path: str with "/" separators. Names are durable only after `fsync_dir` of their directory."""

    def open(self, path: str, *, create: bool = False, truncate: bool = False) -> File:
        """Open for reading and writing. FileNotFoundError unless it exists or `create`."""

    def exists(self, path: str) -> bool:
        """True for a file or a directory."""

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted. FileNotFoundError where there is none."""

    def mkdirs(self, path: str) -> None:
        """Make a directory and its parents; one that exists is no error."""

    def rename(self, old: str, new: str) -> None:
        """Atomically rename a file or directory, replacing a file of that name."""

    def remove(self, path: str) -> None:
        """Remove a file. FileNotFoundError where there is none."""

    def remove_dir(self, path: str) -> None:
        """Remove a directory and everything below it."""

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory (creations, renames, removals) durable."""

    def space(self, path: str) -> DiskSpace:
        """Of the volume that a directory is on. OSError where that cannot be told."""


class Transport(Protocol):
    """One end of a connection, built for few copies and few wake-ups: not `trio.abc.Stream`, for the hot path needs
    `recv_into` with a kept buffer, a `send` that takes what fits now, and `send_file`.

    Non-blocking calls never wait; the two waits never move data. All raise LinkClosed once the link has ended.
    """

    __slots__ = ()

    peer: str
    """Where the other end is, as "host:port", for messages and traces."""

    def recv_into(self, view: memoryview) -> int | None:
        """Receive into `view`. Bytes received; 0 when the peer has closed its side; None when nothing is there now."""

    def send(self, pieces: Sequence[Buffer], *, more: bool = False) -> int:
        """Hand over what fits now, in order. Bytes taken (0 when none fit). `more`: another send follows at once."""

    def send_file(self, file: File, offset: int, length: int) -> int:
        """Like `send`, for `length` bytes of `file` from `offset`, without copying them where the system can."""

    async def wait_readable(self) -> None:
        """Until `recv_into` would return something (or the end of the stream)."""

    async def wait_writable(self) -> None:
        """Until `send` would take something."""

    def close(self) -> None:
        """End the connection; wakes both waits with LinkClosed. Idempotent."""

    def abort(self) -> None:
        """Close by a reset: what was taken and not delivered yet is dropped (TCP's RST). Idempotent."""


class Listener(Protocol):
    """A listening endpoint."""

    port: int
    """The port in use: the one asked for, or the one given where 0 was asked for."""

    async def accept(self) -> Transport:
        """The next incoming connection. LinkClosed once the listener is closed."""

    def close(self) -> None:
        """Stop listening. Idempotent."""


class WakeupSignal(Protocol):
    """Wakes the one task that waits for it, when it is set or at a time-out. Cheaper than a cancel scope around an
    event.
    """

    __slots__ = ()

    def set(self) -> None:
        """Wake the task that waits; where none does, its next wait ends at once."""

    async def wait(self, seconds: float = inf) -> bool:
        """Until it was set since the last wait ended, at most `seconds` of the node's clock. Whether it was set."""


class Env(Protocol):
    """All that node code may ask of the world. One per node incarnation."""

    name: str
    """The node's name, for traces ("broker-1")."""
    incarnation: int
    """Counts the starts of this node, from 1; the simulator and the process runtime set it."""
    rng: random.Random
    """The only source of randomness: ids, jitter, back-off."""
    fs: Fs

    def wall_ms(self) -> int:
        """Wall-clock time, ms since the Unix epoch. May jump: faults skew it. For timestamps and retention."""

    def mono(self) -> float:
        """Monotonic seconds at this node's own rate. For leases, sessions, lags and time-outs."""

    async def sleep(self, seconds: float) -> None:
        """Wait that long by this node's clock."""

    def timeout(self, seconds: float) -> trio.CancelScope:
        """A cancel scope that ends after `seconds` of this node's clock (as trio.move_on_after)."""

    def signal(self) -> WakeupSignal:
        """A new signal, for one task at a time."""

    async def listen(self, host: str, port: int) -> Listener:
        """Listen on a TCP port. OSError where it is taken."""

    async def connect(self, host: str, port: int) -> Transport:
        """Open a connection. OSError where it is refused or cannot be reached."""

    async def cpu(self, fn: Callable[..., T], *args: Any) -> T:
        """Run a blocking function (fsync, a large checksum) off the event loop and wait for its result."""

    def trace(self, event: str, **fields: Any) -> None:
        """Record what decided the data's fate: one line of the node's trace."""
