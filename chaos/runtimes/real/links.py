"""Puts faults on the links of a real cluster, through its proxies, and measures round trips over these links."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Protocol

import trio

from squall.chaos.errors import PreconditionError
from squall.chaos.runtimes.contract import Cut, CutMode, Evidence, Link, LinkFault, ProbeResult
from squall.chaos.runtimes.layout import Address
from squall.chaos.runtimes.real import inquiry
from squall.chaos.runtimes.wire.frames import BrokerTrafficKind


class LinkProxies(Protocol):
    """Represents the proxies of a runtime's links, on which faults are put."""

    async def add(self, name: str, link: Link, fault: LinkFault) -> None:
        """Put a fault on a link."""

    async def remove(self, name: str, link: Link) -> Evidence:
        """Remove the fault. Returns how often the fault acted, if that is counted."""

    async def reset(self) -> None:
        """Remove every fault from every link."""

    def has_fault(self, link: Link) -> bool:
        """Return whether the link has a fault now."""

    def troubles(self) -> tuple[str, ...]:
        """Return error messages about proxies and relays that have ended without an order of the harness."""


class Links:
    """Puts faults on links and probes them. ways: returns the addresses that a link's source dials. If there are
    several, each fault is put on all of them.
    """

    def __init__(self, ways: Callable[[Link], Sequence[Address]], proxies: LinkProxies | None) -> None:
        self._ways = ways
        self._proxies = proxies

    async def fault(self, name: str, link: Link, fault: LinkFault) -> Evidence:
        """Put a fault on a link. Evidence: link, fault (its kind and parameters), asked_ns, began_ns."""
        asked_ns = time.monotonic_ns()
        await self._hurtable().add(name, link, fault)
        told: Evidence = {"link": str(link), "fault": {"kind": type(fault).__name__, **asdict(fault)}}
        return {**told, "asked_ns": asked_ns, "began_ns": time.monotonic_ns()}

    async def heal(self, name: str, link: Link) -> Evidence:
        """Remove the fault of this name from a link. Evidence: link, asked_ns, ended_ns, and what `LinkProxies.remove`
        has counted, such as hits (how often the fault acted).
        """
        asked_ns = time.monotonic_ns()
        counted = await self._hurtable().remove(name, link)
        told: Evidence = {"link": str(link), "asked_ns": asked_ns, "ended_ns": time.monotonic_ns()}
        return {**told, **counted}

    async def reset(self, links: Sequence[Link]) -> Evidence:
        """Reset every open connection over these links. A connection on which no bytes are in transit is closed
        instead. Evidence: t_ns, reset (None: only Toxiproxy knows how many connections there were).

        Toxiproxy's reset_peer is not used: of the open connections it ends only those that carry bytes at that moment.
        """
        for link in links:
            await self._hurtable().add("reset", link, Cut(CutMode.REFUSE))
        for link in links:
            await self._hurtable().remove("reset", link)
        return {"reset": None, "t_ns": time.monotonic_ns()}

    async def heal_all(self) -> None:
        """Remove every fault from every link."""
        if self._proxies is not None:
            await self._proxies.reset()

    def troubles(self) -> tuple[str, ...]:
        """Return error messages about proxies and relays that have ended without an order of the harness."""
        return self._proxies.troubles() if self._proxies is not None else ()

    def way(self, link: Link) -> Address:
        """Return the first of the addresses that the link's source dials."""
        return self._ways(link)[0]

    async def probe_traffic(self, link: Link, traffic: BrokerTrafficKind, timeout_s: float) -> ProbeResult:
        """Probe a link with a request of one kind of broker traffic. If the link's source dials several addresses, only
        the first is probed.
        """
        return await inquiry.probe_traffic(*self._ways(link)[0], traffic, timeout_s=timeout_s)

    async def probe(self, link: Link, timeout_s: float, pad_bytes: int) -> ProbeResult:
        """Open a connection over a link, and time an ApiVersions request that is lengthened by `pad_bytes` bytes. If
        the link's source dials several addresses, all are probed at once. Then the result is ok if all answer, or,
        while the link has a fault, if any answers.
        """
        ways = self._ways(link)
        found: dict[int, ProbeResult] = {}

        async def one(at: int) -> None:
            found[at] = await inquiry.probe(*ways[at], timeout_s=timeout_s, pad_bytes=pad_bytes)

        async with trio.open_nursery() as nursery:
            for at in range(len(ways)):
                nursery.start_soon(one, at)
        hurt = self._proxies is not None and self._proxies.has_fault(link)
        return join_probes([found[at] for at in range(len(ways))], hurt=hurt)

    async def ending(self, link: Link, timeout_s: float, spoil: bool, opened: Callable[[], None]) -> ProbeResult:
        """Open a connection over a link, send a request, and measure how and when the connection ends. spoil: after the
        response, send an invalid frame, for which a broker closes the connection. opened: called when the response
        comes. If the link's source dials several addresses, the first is used.
        """
        return await inquiry.ending(*self._ways(link)[0], timeout_s=timeout_s, spoil=spoil, opened=opened)

    def _hurtable(self) -> LinkProxies:
        if self._proxies is None:
            raise PreconditionError("without Toxiproxy no link can be hurt")
        return self._proxies


def join_probes(probes: Sequence[ProbeResult], *, hurt: bool) -> ProbeResult:
    """Combine the probes of a link's addresses into one result. Without a fault on the link, `ok` is True only if all
    addresses answer. hurt: the link has a fault. Then `ok` is True if any address answers, because a complete cut
    silences all of them.
    """
    ok = any(each.ok for each in probes) if hurt else all(each.ok for each in probes)
    # A round trip is as long as the shortest of those that were: nothing is made of one that another one disproves.
    round_trip_ms = min(each.round_trip_ms for each in probes if each.ok or not ok)
    return ProbeResult(ok, round_trip_ms, None if ok else next(each.error for each in probes if not each.ok))
