"""Defines `Env`, the interface of node code to its environment: clock, randomness, network, files.

Broker and client code never touches a real clock, socket, file, thread or random source. It gets one `Env` per node
incarnation and uses that. `real_env` implements it with the operating system. The simulator implements it with
simulated clocks, links and disks, which behave the same in each run of a seed. A call waits in the simulator only if it
waits in the real world: page-cache writes and sends that fit into the socket's buffer do not. Nurseries, events, cancel
scopes and channels stay plain trio.

A simulated call may raise `NodeDead` at any point: the incarnation has been killed there. It derives from
BaseException, so `except Exception` does not catch it. A `finally` block still runs, but its calls of the Env raise
`NodeDead` again.
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
    """Says that this incarnation was killed. Every call of its Env raises it. Node code must never catch it."""


class LinkClosed(OSError):
    """Says that the connection ended: by the peer, by a fault, or because this side closed it."""


class File(Protocol):
    """Represents an open file. Writes go to the page cache at once; only `fsync` makes them durable.

    Every call raises OSError as the operating system would (ENOSPC, EIO, ...).
    """

    __slots__ = ()

    def pread(self, length: int, offset: int) -> bytes:
        """Return up to `length` bytes from byte `offset`; fewer at the end of the file."""

    def append(self, data: Buffer) -> int:
        """Write all of `data` at the end of the file. Return the byte offset at which it begins."""

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of `data` at byte `offset`, and extend the file if needed."""

    def truncate(self, size: int) -> None:
        """Cut (or zero-extend) the file to `size` bytes."""

    def seal(self) -> None:
        """Give back the disk space that was preallocated for appends, because no append follows for now. Content and
        size stay the same.
        """

    def fsync(self) -> None:
        """Make all earlier writes durable. It blocks: run it with `env.cpu` if latency matters."""

    def size(self) -> int:
        """Return the size of the file, in bytes."""

    def close(self) -> None:
        """Release the handle. Idempotent."""


class DiskSpace(NamedTuple):
    """Holds the total and usable size of a volume, in bytes."""

    total: int
    usable: int
    """Counts the bytes that this node's OS process may still write."""


class Fs(Protocol):
    """Accesses files by path: str with "/" separators. Names are durable only after `fsync_dir` of their directory."""

    def open(self, path: str, *, create: bool = False, truncate: bool = False) -> File:
        """Open a file for reading and writing. Raises FileNotFoundError unless it exists or `create`."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file or a directory of that name."""

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted. Raises FileNotFoundError if it does not exist."""

    def mkdirs(self, path: str) -> None:
        """Make a directory and its parents. Do nothing if it exists."""

    def rename(self, old: str, new: str) -> None:
        """Atomically rename a file or directory, replacing a file of that name."""

    def remove(self, path: str) -> None:
        """Remove a file. Raises FileNotFoundError if it does not exist."""

    def remove_dir(self, path: str) -> None:
        """Remove a directory and everything below it."""

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory (creations, renames, removals) durable."""

    def space(self, path: str) -> DiskSpace:
        """Return the total and usable bytes of a directory's volume. Raises OSError if they are unknown."""


class Transport(Protocol):
    """Represents one end of a connection, built for few copies and few wake-ups. It is not `trio.abc.Stream`, because
    the hot path needs a `recv_into` that reuses its buffer, a `send` that takes what fits now, and `send_file`.

    Non-blocking calls never wait; `wait_readable` and `wait_writable` never move data. All raise LinkClosed once the
    link has ended.
    """

    __slots__ = ()

    peer: str
    """Gives the address of the other end as "host:port", for messages and traces."""

    def recv_into(self, view: memoryview) -> int | None:
        """Receive into `view`. Return the number of bytes; 0 if the peer has closed its side; None if nothing is there
        now.
        """

    def send(self, pieces: Sequence[Buffer], *, more: bool = False) -> int:
        """Send as many bytes as fit now, in order. Return their number (0 if none fit). `more` says that another send
        follows.
        """

    def send_file(self, file: File, offset: int, length: int) -> int:
        """Send as many of the `length` bytes of `file` from `offset` as fit now, without copying them if the system
        can. Return their number (0 if none fit).
        """

    async def wait_readable(self) -> None:
        """Wait until `recv_into` would return something (or the end of the stream)."""

    async def wait_writable(self) -> None:
        """Wait until `send` would take something."""

    def close(self) -> None:
        """End the connection: tasks in `wait_readable` or `wait_writable` get LinkClosed. Idempotent."""

    def abort(self) -> None:
        """Close by a reset (TCP's RST): bytes that were sent and not delivered yet are dropped. Idempotent."""


class Listener(Protocol):
    """Accepts connections on one TCP port of the node."""

    port: int
    """Gives the open port: the requested port, or the assigned port if 0 was requested."""

    async def accept(self) -> Transport:
        """Return the next incoming connection. Raises LinkClosed once the listener is closed."""

    def close(self) -> None:
        """Stop listening. Idempotent."""


class WakeupSignal(Protocol):
    """Wakes the one task that waits for it, when it is set or at a time-out. It is cheaper than a cancel scope around
    an event.
    """

    __slots__ = ()

    def set(self) -> None:
        """Wake the task that waits. If no task waits, the next wait ends at once."""

    async def wait(self, seconds: float = inf) -> bool:
        """Wait until the signal is set, at most `seconds` of the node's clock, and return whether it was set. If it was
        set since the last wait, return at once.
        """


class Env(Protocol):
    """Provides everything that node code may use of its environment. Each node incarnation has its own Env."""

    name: str
    """Gives the node's name, for traces ("broker-1")."""
    incarnation: int
    """Counts the starts of this node, from 1. The simulator or the runtime that starts OS processes sets it."""
    rng: random.Random
    """Is the only source of randomness: for ids, jitter, back-off."""
    fs: Fs

    def wall_ms(self) -> int:
        """Return wall-clock time in ms since the Unix epoch, for timestamps and retention. It may jump: faults skew it.
        """

    def mono(self) -> float:
        """Return monotonic seconds at this node's own rate, for leases, sessions, lags and time-outs."""

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds` of this node's clock."""

    def timeout(self, seconds: float) -> trio.CancelScope:
        """Return a cancel scope that ends after `seconds` of this node's clock (as trio.move_on_after)."""

    def signal(self) -> WakeupSignal:
        """Return a new `WakeupSignal`. One task at a time may wait for it; another task wakes this task with `set`."""

    async def listen(self, host: str, port: int) -> Listener:
        """Listen on a TCP port. Raises OSError if the port is taken."""

    async def connect(self, host: str, port: int) -> Transport:
        """Open a connection. Raises OSError if it is refused or the host cannot be reached."""

    async def cpu(self, fn: Callable[..., T], *args: Any) -> T:
        """Run a blocking function (fsync, a large checksum) off the event loop and wait for its result."""

    def trace(self, event: str, **fields: Any) -> None:
        """Write one line of the node's trace: an event such as "isr_rejected", and its fields."""
