"""Runs the one Toxiproxy process that every link of a run leads through."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import trio

from squall.broker.overriding import override
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import Evidence, Frames, Link, LinkFault
from squall.chaos.runtimes.layout import proxy_name, shown
from squall.chaos.runtimes.real.framed_links import FramedLinks, Routes, route_through_relay, routes_text
from squall.chaos.runtimes.real.links import LinkProxies
from squall.chaos.runtimes.real.processes.child import POLL_S, ChildProcess, start
from squall.chaos.runtimes.real.processes.ports import LOOPBACK, free_ports
from squall.chaos.runtimes.real.processes.registry import RunRegistration, claimed_ports, locked
from squall.chaos.runtimes.real.proxied_links import ProxiedLinks
from squall.chaos.runtimes.real.toxiproxy_api import ToxiproxyApi
from squall.chaos.runtimes.real.toxiproxy_transport import ToxiproxyError
from squall.chaos.toolchain.places import PACKAGES
from squall.checkers.sent import RELAY_FILE

READY_S = 10.0
END_S = 2.0


class ProcessProxies(LinkProxies):
    """Controls the Toxiproxy process and the faults on its links. Its async methods make each call in a thread, so trio
    is not blocked.

    If a broker has two listeners for its peers (Apache Kafka), each link has two proxies: one in each of two mappings
    ("families") of link to proxy. Each fault is put on both, and removed from both.
    """

    def __init__(
        self,
        child: ChildProcess,
        api: ToxiproxyApi,
        links: Sequence[ProxiedLinks],
        relay: tuple[ChildProcess, FramedLinks] | None,
    ) -> None:
        self._child = child
        self._api = api
        self._links = links
        self._relay = relay

    @classmethod
    async def start(
        cls,
        program: Path,
        *,
        api_port: int,
        families: Sequence[Routes],
        log: Path,
        registration: RunRegistration,
        framed: Collection[Link] = (),
    ) -> ProcessProxies:
        """Start Toxiproxy and make all proxies. Raises HarnessError.

        families: mappings of link to proxy: usually one, two for Apache Kafka. framed: links whose proxies lead to the
        relay that parses Kafka requests; the relay leads to the broker.
        """
        relay = None
        if framed:
            families, relay = await _start_relay(families, framed, log.with_name("frame-relay.log"), registration)
        command = [str(program), "-host", LOOPBACK, "-port", str(api_port)]
        child = start("toxiproxy", command, log=log, registration=registration, env={"LOG_LEVEL": "warn"})
        api = ToxiproxyApi(LOOPBACK, api_port)
        try:
            await _wait_ready(api, child)
            names = [
                {link: proxy_name(link) + (f".{at}" if at else "") for link in routes}
                for at, routes in enumerate(families)
            ]
            wanted = [
                (named[link], shown(listen), shown(to))
                for named, routes in zip(names, families, strict=True)
                for link, (listen, to) in routes.items()
            ]
            await trio.to_thread.run_sync(api.populate, wanted)
        except BaseException:
            # Nobody has them yet who could stop them.
            child.signal(signal.SIGKILL)
            if relay is not None:
                relay[0].signal(signal.SIGKILL)
            raise
        return cls(child, api, [ProxiedLinks(api, named) for named in names], relay)

    @override
    async def add(self, name: str, link: Link, fault: LinkFault) -> None:
        """Put a fault on a link: protocol faults by `FramedLinks.add`, all others by `ProxiedLinks.add`."""
        if isinstance(fault, Frames) and self._relay is not None:
            await self._relay[1].add(name, link, fault)
            return
        for links in self._of(link):
            await trio.to_thread.run_sync(links.add, name, link, fault)

    @override
    async def remove(self, name: str, link: Link) -> Evidence:
        """Remove a fault from a link. Returns, for protocol faults, how many frames they hit, as `FramedLinks.remove`.
        """
        if self._relay is not None and self._relay[1].has(name, link):
            return await self._relay[1].remove(name, link)
        for links in self._of(link):
            await trio.to_thread.run_sync(links.remove, name, link)
        return {}

    @override
    async def reset(self) -> None:
        if self._relay is not None:
            await self._relay[1].reset()
        for links in self._links:
            await trio.to_thread.run_sync(links.reset)

    def has_fault(self, link: Link) -> bool:
        """Return whether the link has a fault now."""
        return any(links.has_fault(link) for links in self._links)

    @override
    def troubles(self) -> tuple[str, ...]:
        watched = [("Toxiproxy", "every link", self._child)]
        if self._relay is not None:
            watched.append(("the frame relay", "every link through it", self._relay[0]))
        return tuple(
            f"{who} ended with {child.code}, which nobody asked it to: {what} was cut"
            for who, what, child in watched
            if child.code is not None
        )

    def _of(self, link: Link) -> list[ProxiedLinks]:
        """Return the `ProxiedLinks` that have a proxy for this link: two for a link between Apache Kafka's nodes,
        otherwise one. For an unknown link, return the first `ProxiedLinks`: its methods raise an error that names the
        link.
        """
        return [links for links in self._links if links.has(link)] or [self._links[0]]

    async def stop(self) -> None:
        """End the processes. Idempotent."""
        self._api.close()
        for child in (self._child, *([self._relay[0]] if self._relay is not None else [])):
            child.signal(signal.SIGTERM)
            if await child.ended(END_S) is None:
                child.signal(signal.SIGKILL)
                await child.ended(END_S)


async def _wait_ready(api: ToxiproxyApi, child: ChildProcess) -> None:
    with trio.move_on_after(READY_S):
        while child.code is None:
            try:
                await trio.to_thread.run_sync(api.version)
                return
            except ToxiproxyError:
                await trio.sleep(POLL_S)
    raise HarnessError(f"Toxiproxy does not answer; it last said:\n{child.last_words()}")


async def _start_relay(
    families: Sequence[Routes], framed: Collection[Link], log: Path, registration: RunRegistration
) -> tuple[list[Routes], tuple[ChildProcess, FramedLinks]]:
    """Start the relay that parses Kafka requests, and insert it between Toxiproxy and the brokers on the `framed`
    links. families: mappings of link to proxy, as in `ProcessProxies`.

    Returns the new families, in which the proxies of the framed links lead to the relay, and a pair: the relay's OS
    process, and the object that sends it commands.
    """
    count = sum(link in framed for routes in families for link in routes)
    with locked():
        ports = free_ports(count + 1, claimed_ports(), random.Random())
        registration.claim_ports(ports)
    listening = iter([(LOOPBACK, port) for port in ports[:-1]])
    led, through = zip(*(route_through_relay(routes, framed, listening) for routes in families), strict=True)
    control = (LOOPBACK, ports[-1])
    routes = log.with_suffix(".json")
    routes.write_text(routes_text(control, [way for ways in through for way in ways], log.with_name(RELAY_FILE)))
    command = [sys.executable, "-P", "-m", "squall.chaos.runtimes.real.frame_relay", str(routes)]
    path = {"PYTHONPATH": os.pathsep.join(filter(None, (str(PACKAGES), os.environ.get("PYTHONPATH"))))}
    child = start("frame relay", command, log=log, registration=registration, env=path)
    links = FramedLinks(control, framed)
    with trio.move_on_after(READY_S):
        while child.code is None:
            if await links.ready():
                return [*led], (child, links)
            await trio.sleep(POLL_S)
    child.signal(signal.SIGKILL)
    raise HarnessError(f"the frame relay does not answer; it last said:\n{child.last_words()}")
