"""An Env and links in memory, for tests whose peer is scripted or absent."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import trio

from squall.broker.env import Buffer, LinkClosed
from squall.broker.signals import EventSignal

WALL_MS = 1_700_000_000_000


class Network(Protocol):
    """The network that a FakeEnv needs."""

    def connect(self, host: str, port: int) -> MemoryTransport:
        """Return the caller's end of a new connection. Raises OSError if it is refused."""
        ...


class Pipe:
    """One direction of a link."""

    def __init__(self, capacity: int) -> None:
        self.data = bytearray()
        self.capacity = capacity
        self.ended = False
        self.reset = False
        self.changed = trio.Event()

    def widen(self, size: int) -> None:
        """Let so many more bytes fit in."""
        self.capacity += size
        self.change()

    def change(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


class MemoryTransport:
    """One end of a connection in memory."""

    def __init__(self, peer: str, incoming: Pipe, outgoing: Pipe) -> None:
        self.peer = peer
        self.incoming = incoming
        self.outgoing = outgoing
        self.sends = 0
        self._closed = False

    def recv_into(self, view: memoryview) -> int | None:
        assert view.nbytes
        self._check()
        data = self.incoming.data
        if not data:
            return 0 if self.incoming.ended else None
        count = min(len(view), len(data))
        view[:count] = data[:count]
        del data[:count]
        self.incoming.change()
        return count

    def send(self, pieces: Sequence[Buffer], *, more: bool = False) -> int:
        self._check()
        if self.outgoing.ended:
            raise LinkClosed("broken pipe")
        self.sends += 1
        data = b"".join(pieces)[: max(0, self.outgoing.capacity - len(self.outgoing.data))]
        self.outgoing.data += data
        self.outgoing.change()
        return len(data)

    def send_file(self, file: Any, offset: int, length: int) -> int:
        return self.send((file.pread(length, offset),))

    async def wait_readable(self) -> None:
        self._check()
        while not (self.incoming.data or self.incoming.ended):
            await self.incoming.changed.wait()
            self._check()
        await trio.lowlevel.checkpoint()

    async def wait_writable(self) -> None:
        self._check()
        while len(self.outgoing.data) >= self.outgoing.capacity and not self.outgoing.ended:
            await self.outgoing.changed.wait()
            self._check()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        self._closed = True
        for pipe in (self.incoming, self.outgoing):
            pipe.ended = True
            pipe.change()

    def abort(self) -> None:
        if not self._closed:
            self.outgoing.data.clear()
            self.outgoing.reset = True
            self.close()

    def _check(self) -> None:
        if self._closed or self.incoming.reset:
            raise LinkClosed(f"connection with {self.peer} is closed")


class MemoryNetwork:
    """Listening ports and the links between them."""

    def __init__(self) -> None:
        self.listeners: dict[int, MemoryListener] = {}
        self.refused: set[int] = set()

    def listen(self, port: int) -> MemoryListener:
        listener = self.listeners[port] = MemoryListener(self, port)
        return listener

    def connect(self, host: str, port: int) -> MemoryTransport:
        found = self.listeners.get(port)
        if found is None or port in self.refused:
            raise ConnectionRefusedError(f"nobody listens on {port}")
        there, back = Pipe(1 << 20), Pipe(1 << 20)
        found.put(MemoryTransport(f"{host}:1", there, back))
        return MemoryTransport(f"{host}:{port}", back, there)


class MemoryListener:
    """A port that accepts connections."""

    def __init__(self, network: MemoryNetwork, port: int) -> None:
        self.port = port
        self.links: list[MemoryTransport] = []
        self._network, self._waiting = network, list[MemoryTransport]()
        self._came = trio.Event()
        self._closed = False

    def put(self, link: MemoryTransport) -> None:
        self.links.append(link)
        self._waiting.append(link)
        self._came.set()

    async def accept(self) -> MemoryTransport:
        while not self._waiting:
            if self._closed:
                raise LinkClosed("closed")
            await self._came.wait()
            self._came = trio.Event()
        return self._waiting.pop(0)

    def close(self) -> None:
        self._closed = True
        self._network.listeners.pop(self.port, None)
        self._came.set()


class FakeEnv:
    """An Env over memory and trio's own clock. Without a network every connection is refused."""

    def __init__(self, network: Network | None = None, seed: int = 1, fs: Any = None, name: str = "client") -> None:
        self.name = name
        self.incarnation = 1
        self.rng = random.Random(seed)
        self.fs = fs
        self._network = network
        self.traces: list[tuple[str, dict[str, Any]]] = []

    def wall_ms(self) -> int:
        return WALL_MS + int(trio.current_time() * 1000)

    def mono(self) -> float:
        return trio.current_time()

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    def timeout(self, seconds: float) -> trio.CancelScope:
        return trio.move_on_after(seconds)

    def signal(self) -> EventSignal:
        return EventSignal(self.timeout)

    async def listen(self, host: str, port: int) -> MemoryListener:
        assert isinstance(self._network, MemoryNetwork)
        await trio.lowlevel.checkpoint()
        return self._network.listen(port)

    async def connect(self, host: str, port: int) -> MemoryTransport:
        await trio.lowlevel.checkpoint()
        if self._network is None:
            raise ConnectionRefusedError(f"{host}:{port}")
        return self._network.connect(host, port)

    async def cpu(self, fn: Callable[..., Any], *args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return fn(*args)

    def trace(self, event: str, **fields: Any) -> None:
        self.traces.append((event, fields))

    def events(self, event: str) -> list[dict[str, Any]]:
        """Return the fields of each trace event of that name."""
        return [fields for name, fields in self.traces if name == event]


class SteppedEnv(FakeEnv):
    """An Env whose clock moves only when the test moves it. Time-outs and sleeps use trio's clock."""

    now_ms = 1_000_000

    def mono(self) -> float:
        return self.now_ms / 1000

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms
