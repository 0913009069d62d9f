"""Represents links of a simulated network. A link holds the connections that one host opens to another, and the faults
on them.
"""

# The frames of a connection are followed only if the plan has protocol faults or messages are recorded: following
# them costs a twentieth of each run. Rejected: from the first such fault on, which may begin in the middle of a
# frame.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from math import log
from typing import TYPE_CHECKING, Any, Protocol, cast

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import (
    Bandwidth,
    Cut,
    CutMode,
    Frames,
    Latency,
    LimitData,
    LinkFault,
    Loss,
    ResetPeer,
    Slicer,
    SlowClose,
    StreamDirection,
)
from squall.chaos.runtimes.sim.core import TracedFrame
from squall.chaos.runtimes.wire.conversation import LinkFaultState, StruckEndTxn, strike

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.core import SimCore

BASE_S = 0.00015
MEAN_S = 0.00025
"""Is the mean, in s, of the exponentially distributed time that a packet takes one way in addition to BASE_S, as in a
local network.
"""


class WireConnection(Protocol):
    """Represents an open connection, with the members that its link uses."""

    serial: int

    def reset(self) -> None:
        """Reset both ends at the same moment."""

    def healed(self, manner: CutMode) -> None:
        """Handle the removal of a Cut fault of mode `manner` from the link: deliver the bytes that the cut held back.
        If the mode is DROP and the cut swallowed bytes, reset the connection instead.
        """


class _WireFault:
    """Holds a fault on a link, and counts the packets, requests or responses that it hit."""

    __slots__ = ("fault", "hits", "seen", "struck")

    def __init__(self, fault: LinkFault) -> None:
        self.fault = fault
        self.hits = 0
        self.seen = 0
        self.struck: list[StruckEndTxn] = []


class SimLink:
    """Represents the link from `source` to `target`, and the faults on it. Connections that the target opens to the
    source belong to another link.
    """

    def __init__(self, world: SimCore, source: int | str, target: int | str) -> None:
        self.world, self.kernel = world, world.kernel
        self.source, self.target = source, target
        self.rng = world.rng("link", source, target)
        self.connections: dict[int, WireConnection] = {}
        self.frame_faults: list[LinkFaultState] = []
        self.faulty = False
        """Is True if the link has any fault."""
        self.refuses = self.silent = False
        """Hold whether new connections are refused (`refuses`), and whether the first packet of a new connection gets
        no answer (`silent`).
        """
        self._on: dict[str, _WireFault] = {}
        self._cuts: dict[StreamDirection, frozenset[CutMode]] = {}
        self._sort()

    # ------------------------------------------------------------------ faults

    def add(self, name: str, fault: LinkFault) -> None:
        """Put a fault on the link."""
        if name in self._on:
            raise HarnessError(f"link {self.source}->{self.target} already has a fault named {name}")
        if isinstance(fault, Frames) and not self.world.frames_matter:
            raise HarnessError("this world was told that no protocol fault would come: it has lost count of the frames")
        self._on[name] = _WireFault(fault)
        self._sort()
        if isinstance(fault, Cut) and fault.manner is CutMode.REFUSE:
            self.reset_all()
        if isinstance(fault, ResetPeer):
            self.kernel.at(fault.after_ms / 1000, self._reset_if, name)

    def fault(self, name: str) -> LinkFault | None:
        """Return the fault of this name on the link, or None."""
        on = self._on.get(name)
        return None if on is None else on.fault

    def remove(self, name: str) -> dict[str, Any]:
        """Remove a fault from the link. Returns `hits`: how many packets, requests or responses the fault hit; 0 if
        there is no such fault. If the fault hit EndTxn requests, returns also `struck`: reports of the first of them,
        at most eight (`STRUCK_REPORTS`).
        """
        on = self._on.pop(name, None)
        if on is None:
            return {"hits": 0}
        self._sort()
        if isinstance(on.fault, Cut):
            for connection in list(self.connections.values()):
                connection.healed(on.fault.manner)
        return {"hits": on.hits, **({"struck": list(map(asdict, on.struck))} if on.struck else {})}

    def clear(self) -> None:
        """Remove every fault from the link."""
        for name in list(self._on):
            self.remove(name)

    def reset_all(self) -> int:
        """Reset every open connection. Returns their number."""
        found = list(self.connections.values())
        for connection in found:
            connection.reset()
        return len(found)

    def opened(self, connection: WireConnection) -> None:
        """Add a new connection to the link."""
        self.connections[connection.serial] = connection
        for on in self._on.values():
            if isinstance(on.fault, ResetPeer):
                self.kernel.at(on.fault.after_ms / 1000, connection.reset)

    def _reset_if(self, name: str) -> None:
        if name in self._on:
            self.reset_all()

    def _sort(self) -> None:
        faults = [on.fault for on in self._on.values()]
        self.faulty = bool(faults)
        for stream in (StreamDirection.THERE, StreamDirection.BACK):
            self._cuts[stream] = frozenset(
                f.manner for f in faults if isinstance(f, Cut) and f.stream in (stream, StreamDirection.BOTH)
            )
        self.refuses = any(CutMode.REFUSE in cuts for cuts in self._cuts.values())
        self.silent = any(self._cuts.values())
        self.frame_faults = [cast(LinkFaultState, on) for on in self._on.values() if isinstance(on.fault, Frames)]

    def _of(self, kind: type, stream: StreamDirection) -> list[_WireFault]:
        if not self._on:
            return []
        return [
            o
            for o in self._on.values()
            if isinstance(o.fault, kind) and o.fault.stream in (stream, StreamDirection.BOTH)
        ]

    # ------------------------------------------------------------------ what they do

    def drops(self, stream: StreamDirection) -> bool:
        """Return whether a cut swallows the stream's bytes."""
        return CutMode.DROP in self._cuts[stream]

    def holds(self, stream: StreamDirection) -> bool:
        """Return whether the stream's bytes wait until a cut is healed."""
        return CutMode.HOLD in self._cuts[stream]

    def base_s(self) -> float:
        """Return the seconds that a packet takes one way, without faults."""
        # `Random.expovariate` without its call, because each packet draws one.
        return BASE_S - log(1.0 - self.rng.random()) * MEAN_S

    def connect_delay_s(self) -> float:
        """Return the seconds from a connection's first packet (SYN) to its answer. They include the delays that faults
        of the link add.
        """
        took_s = 0.0
        for stream in (StreamDirection.THERE, StreamDirection.BACK):
            took_s += self.takes(stream, 0, 0.0)[0]
            rto_s = self.lost(stream)
            while rto_s:
                took_s += rto_s
                rto_s = 2 * rto_s if self.lost(stream) else 0.0
        return took_s

    def takes(self, stream: StreamDirection, size: int, busy_until: float) -> tuple[float, float]:
        """Return the seconds until bytes that are sent now arrive if they are not lost, and the new value of
        `busy_until`. size: the number of bytes.

        busy_until: the virtual time, in s, until which earlier bytes use up a bandwidth limit.
        """
        took_s = self.base_s()
        if not self._on:
            return took_s, busy_until
        for on in self._of(Latency, stream):
            assert isinstance(on.fault, Latency)
            spread = (self.rng.random() * 2 - 1) * on.fault.jitter_ms
            took_s += max(0.0, on.fault.latency_ms + spread) / 1000
        if narrow := self._of(Bandwidth, stream):
            busy_until = max(busy_until, self.kernel.now)
            for on in narrow:
                assert isinstance(on.fault, Bandwidth)
                busy_until += size / (max(1, on.fault.kb_per_s) * 1024)
            took_s += busy_until - self.kernel.now
        return took_s, busy_until

    def lost(self, stream: StreamDirection) -> float:
        """Return 0.0 if a packet that is sent now arrives; if a Loss fault loses it, the seconds until its first
        retransmission (RTO).
        """
        for on in self._of(Loss, stream):
            assert isinstance(on.fault, Loss)
            # At most 0.9, or a loss of every packet would never end.
            if self.rng.random() < min(on.fault.probability, 0.9):
                on.hits += 1
                return on.fault.rto_ms / 1000
        return 0.0

    def pieces(self, stream: StreamDirection, data: bytes | None) -> Iterator[tuple[bytes | None, float]]:
        """Yield the pieces in which the bytes arrive, as (piece, seconds after the previous piece). Without a Slicer
        fault there is one piece.
        """
        slicers = self._of(Slicer, stream)
        if data is None or not slicers:
            yield data, 0.0
            return
        found: Iterator[tuple[bytes, float]] = iter([(data, 0.0)])
        for on in slicers:
            assert isinstance(on.fault, Slicer)
            found = self._sliced(on.fault, found)
        yield from found

    def pause_s(self, stream: StreamDirection) -> float:
        """Return the seconds that Slicer faults wait after the last piece of a send, before they pass on the next one.
        """
        return sum(o.fault.delay_us for o in self._of(Slicer, stream)) / 1e6  # type: ignore[union-attr, misc]

    def _sliced(self, slicer: Slicer, pieces: Iterator[tuple[bytes, float]]) -> Iterator[tuple[bytes, float]]:
        """Cut pieces into smaller ones, as Toxiproxy's "slicer" does. A piece is cut only once all pieces before it
        have been passed on. A piece comes with its delay in s after the previous piece.
        """
        delay_s = slicer.delay_us / 1e6
        behind_s, first = 0.0, True
        for data, gap_s in pieces:
            at = 0
            while at < len(data):
                size = max(1, slicer.average_bytes + self.rng.randint(-slicer.variation_bytes, slicer.variation_bytes))
                wait_s = delay_s if at else gap_s if first else max(gap_s - behind_s, delay_s)
                behind_s += wait_s - (0.0 if at else gap_s)
                yield data[at : at + size], wait_s
                at, first = at + size, False

    def limit(self, stream: StreamDirection) -> int | None:
        """Return the number of bytes after which a fault ends each connection; None if no fault does."""
        return min((o.fault.limit_bytes for o in self._of(LimitData, stream)), default=None)  # type: ignore[union-attr]

    def slow_close_s(self, stream: StreamDirection) -> float:
        """Return by how many seconds the end of a stream is delayed."""
        return sum(o.fault.delay_ms for o in self._of(SlowClose, stream)) / 1000  # type: ignore[union-attr, misc]

    def hit(self, stream: StreamDirection, api: int) -> LinkFaultState | None:
        """Return the first of the link's protocol faults that acts on a request or response of this API; None if none
        does. The frame is counted for that fault and for those before it in the list, but not for those after it.
        """
        return strike(self.frame_faults, stream, api)

    def note(self, stream: StreamDirection, api: int, correlation_id: int, size: int, note: str) -> None:
        """Record a request or response that was sent, for diagrams. Its time of arrival is an estimate: the time of
        sending plus the link's mean delay without faults.
        """
        there = stream is StreamDirection.THERE
        source, target = (self.source, self.target) if there else (self.target, self.source)
        kind = "request" if there else "response"
        assert self.world.messages is not None
        now = self.world.mono
        message = TracedFrame(now, now + BASE_S + MEAN_S, source, target, api, kind, correlation_id, size, note)
        self.world.messages.append(message)
