"""A relay that knows Kafka's frames: it puts protocol faults on links whose proxies know only bytes.

It is a process of its own, `python -m chaos.runtimes.real.frame_relay ROUTES`: inside a busy harness it would itself
delay bytes. ROUTES is a JSON file: {"control": [host, port], "routes": [{"link": "1->2", "listen": [host, port], "to":
[host, port]}]}. A link may have several routes; a fault acts on all of them. Orders arrive over the control port, one
JSON object a line, and each gets one answer (`Orders`). If a connection's frames are invalid, its bytes still pass.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from chaos.runtimes.contract import FrameAct, Frames, Stream
from chaos.runtimes.wire.conversation import Conversation, OnLink, strike

CHUNK = 256 * 1024
MOST = 4 * 1024 * 1024
"""Bytes on their way in one direction; then nothing more is read."""
DIAL_S = 10.0
GIVE_UP = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""


@dataclass
class On:
    """A fault on a link, and a count of what it has done. As `OnLink`."""

    fault: Frames
    seen: int = 0
    hits: int = 0


@dataclass
class FrameFaults:
    """The faults on one link, by name."""

    named: dict[str, On] = field(default_factory=dict)

    def all(self) -> list[OnLink]:
        """In the order in which they began."""
        return list(self.named.values())


class Orders:
    """The orders of the harness: {"do": "add", "link", "name", "fault"}, {"do": "remove", "link", "name"} (its answer
    has hits), {"do": "reset"}. The answer has `error` if the order was not carried out.
    """

    def __init__(self, links: dict[str, FrameFaults]) -> None:
        self._links = links

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out one order and answer it."""
        match order.get("do"):
            case "add":
                return self._add(order)
            case "remove":
                on = self._of(order).named.pop(order["name"], None)
                return {"hits": on.hits if on else 0}
            case "reset":
                for faults in self._links.values():
                    faults.named.clear()
                return {}
        return {"error": f"no such order: {order.get('do')!r}"}

    def _add(self, order: dict[str, Any]) -> dict[str, Any]:
        faults, name = self._of(order), order["name"]
        if name in faults.named:
            return {"error": f"link {order['link']} already has a fault named {name}"}
        told = order["fault"]
        fault = Frames(**{**told, "act": FrameAct(told["act"]), "stream": Stream(told["stream"])})
        faults.named[name] = On(fault)
        return {}

    def _of(self, order: dict[str, Any]) -> FrameFaults:
        return self._links[order["link"]]


class Outlet:
    """The bytes on their way to one end, in order, each sent no earlier than its time. None marks the end."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._queue: deque[tuple[float, bytes | None]] = deque()
        self._held = 0
        self._changed = trio.Event()

    def put(self, data: bytes | None, later_s: float = 0.0) -> None:
        """Queue bytes behind those that are already on their way."""
        self._queue.append((trio.current_time() + later_s, data))
        self._held += len(data or b"")
        self._tell()

    async def room(self) -> None:
        """Wait until few enough bytes are on their way."""
        while self._held > MOST:
            await self._changed.wait()

    async def run(self) -> None:
        """Send until the end has been passed on."""
        while True:
            while not self._queue:
                await self._changed.wait()
            at, data = self._queue[0]
            await trio.sleep_until(at)
            if data is None:
                await self._stream.send_eof()
                return
            await self._stream.send_all(data)
            self._queue.popleft()
            self._held -= len(data)
            self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


class Relayed(Conversation):
    """One connection through the relay."""

    def __init__(self, faults: FrameFaults, source: trio.SocketStream, target: trio.SocketStream) -> None:
        super().__init__()
        self._faults = faults
        self._source, self._target = source, target
        self._outlets = {Stream.THERE: Outlet(target), Stream.BACK: Outlet(source)}
        self._timers: trio.Nursery | None = None

    def framed(self) -> bool:
        """As `Conversation.framed`."""
        return bool(self._faults.named)

    def hit(self, stream: Stream, api: int) -> OnLink | None:
        """As `Conversation.hit`."""
        return strike(self._faults.all(), stream, api)

    def put(self, stream: Stream, data: bytes, later_s: float) -> None:
        """As `Conversation.put`."""
        self._outlets[stream].put(data, later_s)

    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        """As `Conversation.later`."""
        assert self._timers is not None, "bytes come once it runs"
        self._timers.start_soon(self._wait, delay_s, act)

    async def run(self) -> None:
        """Relay until both ends have ended. If one end is reset, reset the other."""
        try:
            async with trio.open_nursery() as self._timers:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, self._source, Stream.THERE)
                    nursery.start_soon(self._pump, self._target, Stream.BACK)
                    for outlet in self._outlets.values():
                        nursery.start_soon(outlet.run)
                self._timers.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            for end in (self._source, self._target):
                give_up(end)

    async def _wait(self, delay_s: float, act: Callable[[], None]) -> None:
        await trio.sleep(delay_s)
        act()

    async def _pump(self, end: trio.SocketStream, stream: Stream) -> None:
        outlet = self._outlets[stream]
        take = self.asked if stream is Stream.THERE else self.answered
        while data := await end.receive_some(CHUNK):
            take(bytes(data))
            await outlet.room()
        self.ended(stream)
        outlet.put(None)


def give_up(end: trio.SocketStream) -> None:
    """Mark a connection: the close that follows resets it."""
    try:
        end.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, GIVE_UP)
    except OSError:
        pass  # it is closed already


async def relay(faults: FrameFaults, to: tuple[str, int], source: trio.SocketStream) -> None:
    """Relay one connection from its accept to its end. If the target does not answer, reset the connection."""
    async with source:
        try:
            with trio.fail_after(DIAL_S):
                target = await trio.open_tcp_stream(*to)
        except (OSError, trio.TooSlowError):
            give_up(source)
            return
        async with target:
            for end in (source, target):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await Relayed(faults, source, target).run()


async def control(orders: Orders, stream: trio.SocketStream) -> None:
    """Answer the orders that arrive over one connection."""
    held = b""
    async with stream:
        async for data in stream:
            *lines, held = (held + data).split(b"\n")
            for line in lines:
                try:
                    answer = orders.answer(json.loads(line))
                except (ValueError, KeyError, TypeError) as wrong:
                    answer = {"error": f"an order that cannot be read: {type(wrong).__name__}: {wrong}"}
                await stream.send_all(json.dumps(answer).encode() + b"\n")


async def main(routes: dict[str, Any]) -> None:
    """Listen on every route and for orders. Never ends by itself."""
    links: dict[str, FrameFaults] = {}

    async def serve_route(route: dict[str, Any]) -> None:
        faults, to = links.setdefault(route["link"], FrameFaults()), (route["to"][0], int(route["to"][1]))

        async def serve(source: trio.SocketStream) -> None:
            try:
                await relay(faults, to, source)
            except* (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                pass

        listeners = await trio.open_tcp_listeners(route["listen"][1], host=route["listen"][0])
        nursery.start_soon(trio.serve_listeners, serve, listeners)

    async def serve_orders(stream: trio.SocketStream) -> None:
        try:
            await control(orders, stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    orders = Orders(links)
    async with trio.open_nursery() as nursery:
        for route in routes["routes"]:
            await serve_route(route)
        host, port = routes["control"]
        listeners = await trio.open_tcp_listeners(port, host=host)
        nursery.start_soon(trio.serve_listeners, serve_orders, listeners)


if __name__ == "__main__":
    trio.run(main, json.loads(Path(sys.argv[1]).read_text()))
