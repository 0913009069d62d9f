"""Relays connections and parses Kafka's requests and responses, for faults that act on single requests or responses:
Toxiproxy sees only bytes.

It is an OS process of its own, `python -m squall.chaos.runtimes.real.frame_relay ROUTES`: inside a busy harness it
would itself delay bytes. ROUTES is a JSON file: {"control": [host, port], "routes": [{"link": "1->2", "listen": [host,
port], "to": [host, port]}]}. A link may have several routes; a fault acts on all of them. Commands arrive over the
control port, one JSON object a line, and each gets one answer (`RelayCommands`). Bytes of invalid frames still pass. If
the file also has "produce": FILE, the relay counts the clients' Produce requests in FILE by the producers' settings, as
Squall brokers do in their traces.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from squall.broker.overriding import override
from squall.broker.protocol.produce_counts import ProducerSettingsCounter
from squall.chaos.runtimes.contract import FrameAct, Frames, StreamDirection
from squall.chaos.runtimes.real.relay_loop import MOST, ConnectionEnd, RelayEventLoop, connect
from squall.chaos.runtimes.wire.conversation import FramedConnection, LinkFaultState, StruckEndTxn, strike
from squall.chaos.runtimes.wire.frames import REQUEST_HEAD, Framer, decode_produce_request

DIAL_S = 10.0


@dataclass
class RelayFault:
    """Holds a fault on a link of the relay. seen: how many frames (requests or responses) of the fault's Kafka APIs
    have come. hits: how many of these the fault acted on. struck: the first EndTxn requests among the hits, at most
    `STRUCK_REPORTS`.
    """

    fault: Frames
    seen: int = 0
    hits: int = 0
    struck: list[StruckEndTxn] = field(default_factory=list)


@dataclass
class FrameFaults:
    """Holds the protocol faults on one link, by name."""

    named: dict[str, RelayFault] = field(default_factory=dict)

    def all(self) -> list[LinkFaultState]:
        """Return the faults in the order in which they began."""
        return list(self.named.values())


class RelayCommands:
    """Carries out the harness's commands: {"do": "add", "link", "name", "fault"}, {"do": "remove", "link", "name"},
    {"do": "reset"}.

    The answer to "remove" has hits (how many requests or responses the fault acted on) and struck (the first EndTxn
    requests among them, at most `STRUCK_REPORTS`, each a `StruckEndTxn` as a dict). An answer has "error" if the
    command was not carried out.
    """

    def __init__(self, links: dict[str, FrameFaults]) -> None:
        self._links = links

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out one command and answer it."""
        match order.get("do"):
            case "add":
                return self._add(order)
            case "remove":
                on = self._of(order).named.pop(order["name"], None)
                return {"hits": on.hits, "struck": list(map(asdict, on.struck))} if on else {"hits": 0}
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
        stream = StreamDirection(told["stream"])
        typed = {"act": FrameAct(told["act"]), "stream": stream, "also": tuple(told.get("also", ()))}
        fault = Frames(**{**told, **typed})
        faults.named[name] = RelayFault(fault)
        return {}

    def _of(self, order: dict[str, Any]) -> FrameFaults:
        return self._links[order["link"]]


class RelayedConnection(FramedConnection):
    """Represents one connection through the relay, made of two sockets: the source's and the target's. It ends when
    both directions have ended. A reset of one socket resets both.
    """

    def __init__(
        self,
        loop: RelayEventLoop,
        faults: FrameFaults,
        counts: ProducerSettingsCounter | None,
        source: ConnectionEnd,
        target: ConnectionEnd,
    ) -> None:
        super().__init__()
        self._loop, self._faults, self._counts = loop, faults, counts
        self._copied = Framer(REQUEST_HEAD, lambda head: None)
        """Parses a copy of all requests, so that Produce requests are counted even if a fault holds or drops them."""
        self._ends = {StreamDirection.THERE: (source, target), StreamDirection.BACK: (target, source)}
        """Maps a direction to the socket from which its bytes come and the socket to which they are passed on."""
        self._more = {StreamDirection.THERE, StreamDirection.BACK}
        """Holds the directions in which more bytes may come: the sender has not closed the connection yet."""
        for stream, (origin, sink) in self._ends.items():
            origin.arrived = partial(self._arrived, stream)
            origin.broken = self._broken
            sink.sent = partial(self._sent, stream)
            origin.read(True)

    @override
    def framed(self) -> bool:
        return bool(self._faults.named)

    @override
    def hit(self, stream: StreamDirection, api: int) -> LinkFaultState | None:
        return strike(self._faults.all(), stream, api)

    @override
    def put(self, stream: StreamDirection, data: bytes, later_s: float) -> None:
        self._ends[stream][1].put(data, later_s)

    @override
    def reset(self) -> None:
        self._close(reset=True)

    @override
    def later(self, delay_s: float, act: Callable[[], None]) -> None:
        self._loop.later(delay_s, act)

    @override
    def now_ns(self) -> int:
        return time.monotonic_ns()

    def _arrived(self, stream: StreamDirection, data: bytes) -> None:
        origin, sink = self._ends[stream]
        if not data:
            self._more.discard(stream)
            self.ended(stream)
            sink.put(None, self.lingers_s(stream))
        elif stream is StreamDirection.THERE:
            self.asked(data)
            if self._counts is not None:
                self._count(self._counts, data)
        else:
            self.answered(data)
        if sink.held > MOST:
            origin.read(False)

    def _count(self, counts: ProducerSettingsCounter, data: bytes) -> None:
        for frame in self._copied.cut(data)[1]:
            if (found := decode_produce_request(frame)) is not None:
                counts.count(*found, self.unanswered_produces, self.unanswered_produces())

    def _sent(self, stream: StreamDirection) -> None:
        origin, sink = self._ends[stream]
        if sink.held <= MOST and stream in self._more:
            origin.read(True)
        if all(end.finished for end, _ in self._ends.values()):
            self._close(reset=False)

    def _broken(self) -> None:
        self._close(reset=True)

    def _close(self, *, reset: bool) -> None:
        for end, _ in self._ends.values():
            end.close(reset=reset)
        if self._counts is not None:
            self._counts.trace_changed()


def relay(
    loop: RelayEventLoop,
    faults: FrameFaults,
    counts: ProducerSettingsCounter | None,
    to: tuple[str, int],
    source: socket.socket,
) -> None:
    """Relay one accepted connection, `source`, to the address `to` until it ends. If the target does not answer, reset
    the connection. counts: counts the Produce requests of the link; None if they are not counted.
    """
    near = ConnectionEnd(loop, source)

    def connected(target: socket.socket | None) -> None:
        if target is None:
            near.close(reset=True)
        else:
            RelayedConnection(loop, faults, counts, near, ConnectionEnd(loop, target))

    connect(loop, to, DIAL_S, connected)


def control(loop: RelayEventLoop, orders: RelayCommands, stream: socket.socket) -> None:
    """Answer the commands that arrive over one connection."""
    end, held = ConnectionEnd(loop, stream), bytearray()

    def arrived(data: bytes) -> None:
        if not data:
            end.close()
            return
        held.extend(data)
        *lines, rest = bytes(held).split(b"\n")
        held[:] = rest
        for line in lines:
            try:
                answer = orders.answer(json.loads(line))
            except (ValueError, KeyError, TypeError) as wrong:
                answer = {"error": f"an order that cannot be read: {type(wrong).__name__}: {wrong}"}
            end.put(json.dumps(answer).encode() + b"\n")

    end.arrived, end.broken = arrived, end.close
    end.read(True)


def main(routes: dict[str, Any]) -> None:
    """Accept connections to relay on the address of every route, and commands on the control address. Never returns.
    routes: the parsed ROUTES file.
    """
    loop, links = RelayEventLoop(), dict[str, FrameFaults]()
    # By lines, because the relay is ended by a signal and then flushes nothing.
    counted = Path(routes["produce"]).open("a", buffering=1) if "produce" in routes else None
    counts: dict[str, ProducerSettingsCounter] = {}
    for route in routes["routes"]:
        # Links between brokers begin with a broker's id. Their requests are not the clients'.
        if counted is not None and not route["link"][:1].isdigit():
            counts.setdefault(route["link"], ProducerSettingsCounter(partial(_trace, counted, route["link"])))
        faults, to = links.setdefault(route["link"], FrameFaults()), (route["to"][0], int(route["to"][1]))
        host, port = route["listen"]
        loop.listen(host, port, partial(relay, loop, faults, counts.get(route["link"]), to))
    host, port = routes["control"]
    loop.listen(host, port, partial(control, loop, RelayCommands(links)))
    loop.run()


def _trace(lines: TextIO, link: str, event: str, **fields: Any) -> None:
    """Write a line to the relay's file of Produce counts, in the format of a broker's trace. event: the type of the
    line. fields: the producer's settings and the counts.
    """
    lines.write(json.dumps({"t": time.monotonic(), "e": event, "link": link, **fields}) + "\n")


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
