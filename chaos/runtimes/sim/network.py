"""Represents a simulated network: hosts, listeners, and the links between hosts."""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING, Protocol

import trio

from squall.broker.env import LinkClosed, Listener
from squall.broker.overriding import override
from squall.chaos.runtimes.sim.links import SimConnection, SimTransport, TransportOwner
from squall.chaos.runtimes.sim.wires import SimLink

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.core import SimCore

FIRST_FREE_PORT = 40_000
BACKLOG = 1024
SYN_AGAIN_S = 0.25
"""Is the time, in s, after which an unanswered connection attempt is repeated; each further wait is twice as long."""
SYN_AGAIN_MAX_S = 2.0


class NetworkPeer(TransportOwner, Protocol):
    """Represents a broker or client on the network: it listens or dials."""

    host: str
    source: int | str | None
    listeners: list[SimListener]

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds` of the node's clock."""


class SimListener(Listener):
    """Listens on an address of the simulated network, and accepts connections in virtual time."""

    def __init__(self, network: SimNetwork, env: NetworkPeer, port: int) -> None:
        self._network, self.env, self.port = network, env, port
        self._queue: deque[SimTransport] = deque()
        self._waiter: trio.lowlevel.Task | None = None
        self.closed = False

    def offer(self, link: SimTransport) -> None:
        """Queue a new connection for `accept`."""
        self._queue.append(link)
        self._wake()

    @property
    def full(self) -> bool:
        """Is True if the backlog of connections that were not accepted yet is full."""
        return len(self._queue) >= BACKLOG

    @override
    async def accept(self) -> SimTransport:
        while not self._queue and not self.closed:
            await self.env.wait(self._wait_by, self._unwait)
        await trio.lowlevel.checkpoint()
        if self.closed or not self._queue:
            raise LinkClosed("the listener is closed")
        return self._queue.popleft()

    @override
    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._network.unlisten(self)
            while self._queue:
                waiting = self._queue.popleft()
                if not waiting.closed:
                    # As a kernel resets the connections in the backlog.
                    waiting.finish(reset=True)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            task, self._waiter = self._waiter, None
            self.env.wake(task)

    def _wait_by(self, task: trio.lowlevel.Task) -> None:
        self._waiter = task

    def _unwait(self) -> None:
        self._waiter = None


class SimNetwork:
    """Connects hosts by links, and makes each link at its first use."""

    def __init__(self, world: SimCore) -> None:
        self._world = world
        self._listeners: dict[tuple[str, int], SimListener] = {}
        self._wires: dict[tuple[int | str, int | str], SimLink] = {}
        self._sides: dict[tuple[str, int], tuple[int | str, int | str]] = {}
        self._serial = 0
        self._free_port = FIRST_FREE_PORT

    def wire(self, source: int | str, target: int | str) -> SimLink:
        """Return the link from one host to another."""
        key = (source, target)
        if key not in self._wires:
            self._wires[key] = SimLink(self._world, source, target)
        return self._wires[key]

    def wires(self) -> list[SimLink]:
        """Return all links that were ever used, in a fixed order."""
        return [self._wires[key] for key in sorted(self._wires, key=repr)]

    def register_address(self, host: str, port: int, source: int | str, target: int | str) -> None:
        """Record that a client that connects to this address uses the link from `source` to the node `target`. source:
        the client zone (group of clients) that the address serves; "prober" for an address that only the harness uses.
        """
        self._sides[host, port] = (source, target)

    def listen(self, env: NetworkPeer, port: int) -> SimListener:
        """Open a listener at the host of the broker or client `env`. Port 0 chooses a free port. Raises OSError if the
        port is in use.
        """
        if port == 0:
            self._free_port += 1
            port = self._free_port
        if (env.host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"cannot listen at {env.host}:{port}: Address already in use")
        listener = self._listeners[env.host, port] = SimListener(self, env, port)
        env.listeners.append(listener)
        return listener

    def unlisten(self, listener: SimListener) -> None:
        """Free the listener's port."""
        if self._listeners.get((listener.env.host, listener.port)) is listener:
            del self._listeners[listener.env.host, listener.port]

    async def connect(self, env: NetworkPeer, host: str, port: int) -> SimTransport:
        """Open a connection from the broker or client `env` to an address, after one round trip. Raises
        ConnectionRefusedError if no listener accepts it, or if a fault of the link refuses it. While a fault swallows
        packets, waits and tries again, as a kernel repeats a SYN.
        """
        # A client is in the zone whose listener it dials.
        zone, target = self._sides.get((host, port), ("nowhere", host))
        wire = self.wire(env.source if env.source is not None else zone, target)
        again_s = SYN_AGAIN_S
        await env.sleep(wire.base_s() + wire.connect_delay_s())
        # A cut swallows the SYN or its answer. The kernel repeats the SYN; the client's own time-out ends the wait.
        while wire.silent and not wire.refuses:
            await env.sleep(again_s)
            again_s = min(again_s * 2, SYN_AGAIN_MAX_S)
        listener = self._listeners.get((host, port))
        if wire.refuses or listener is None or listener.closed or not listener.env.alive or listener.full:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"cannot connect to {host}:{port}: Connection refused")
        env.gate("connected", host)
        self._serial += 1
        # Each end has a number of its own: a node that connects to itself has both in its `links`.
        ours = SimTransport(env, f"{host}:{port}", 2 * self._serial)
        theirs = SimTransport(listener.env, f"{env.host}:{50_000 + self._serial % 10_000}", 2 * self._serial + 1)
        wire.opened(SimConnection(wire, self._serial, ours, theirs))
        listener.offer(theirs)
        return ours
