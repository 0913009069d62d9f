"""Runs the one Toxiproxy container that every link of a run leads through."""

from __future__ import annotations

from pathlib import Path

import trio

from squall.broker.overriding import override
from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.contract import Evidence, Frames, Link, LinkFault, Loss
from squall.chaos.runtimes.docker.addresses import API_PORT
from squall.chaos.runtimes.docker.container import POLL_S, Container, exit_text, last_words
from squall.chaos.runtimes.docker.losses import PacketLossRules
from squall.chaos.runtimes.docker.relay import RelayContainer
from squall.chaos.runtimes.layout import proxy_name, shown
from squall.chaos.runtimes.real.framed_links import Routes
from squall.chaos.runtimes.real.links import LinkProxies
from squall.chaos.runtimes.real.proxied_links import ProxiedLinks
from squall.chaos.runtimes.real.toxiproxy_api import ToxiproxyApi
from squall.chaos.runtimes.real.toxiproxy_transport import ToxiproxyError

READY_S = 20.0
LOG_INSIDE = "/toxiproxy.log"


def command(host: str) -> list[str]:
    """Return the command of Toxiproxy's container. host: the address at which Toxiproxy's API listens."""
    redirected = f'LOG_LEVEL=warn exec "$@" >>{LOG_INSIDE} 2>&1'
    return ["sh", "-c", redirected, "sh", "toxiproxy-server", "-host", host, "-port", str(API_PORT)]


class ContainerProxies(LinkProxies):
    """Controls the Toxiproxy container and the faults on its links. Its async methods make each call in a thread, so
    trio is not blocked.
    """

    def __init__(
        self,
        container: Container,
        host: str,
        routes: Routes,
        relay: RelayContainer | None = None,
        *,
        lossy: bool = False,
    ) -> None:
        """Prepare the proxies. host: Toxiproxy's address. routes: for each link, the address of its proxy and the
        address to which the proxy leads. relay: parses Kafka requests; None if no link has protocol faults. lossy: the
        container may lose packets.
        """
        self._container, self._relay, self._is_lossy = container, relay, lossy
        self._api = ToxiproxyApi(host, API_PORT)
        self._routes = relay.routes if relay is not None else routes
        self._links = ProxiedLinks(self._api, {link: proxy_name(link) for link in routes})
        self._losses = PacketLossRules(container, {link: listen[1] for link, (listen, _) in routes.items()})

    async def start(self, log: Path) -> None:
        """Start the relay that parses Kafka requests, and then Toxiproxy with a proxy for each link. Raises
        HarnessError if one of them does not start.
        """
        if self._relay is not None:
            await self._relay.start(log.with_name("frame-relay.log"))
        await self._container.create()
        await self._container.start()
        await self._wait_ready(log)
        wanted = [(proxy_name(link), shown(listen), shown(to)) for link, (listen, to) in self._routes.items()]
        await trio.to_thread.run_sync(self._api.populate, wanted)

    @override
    async def add(self, name: str, link: Link, fault: LinkFault) -> None:
        """Put a fault on a link. Loss acts on packets (`PacketLossRules`), protocol faults act in the relay that parses
        Kafka requests (`FramedLinks.add`), all others in Toxiproxy (`ProxiedLinks.add`).
        """
        self._check()
        if isinstance(fault, Frames) and self._relay is not None:
            await self._relay.links.add(name, link, fault)
            return
        if isinstance(fault, Loss):
            if not self._is_lossy:
                raise PreconditionError("no packets can be lost: Toxiproxy's container was started without NET_ADMIN")
            await self._losses.add(name, link, fault)
            return
        await trio.to_thread.run_sync(self._links.add, name, link, fault)

    @override
    async def remove(self, name: str, link: Link) -> Evidence:
        """Remove a fault from a link. Evidence: for Loss, hits (how many packets it lost). For protocol faults, hits
        (how many requests or responses the fault hit) and struck (those EndTxn requests among them that
        `FramedLinks.remove` reports). For all others, none.
        """
        self._check()
        if self._relay is not None and self._relay.links.has(name, link):
            return await self._relay.links.remove(name, link)
        if self._losses.has(name, link):
            return {"hits": await self._losses.remove(name, link)}
        await trio.to_thread.run_sync(self._links.remove, name, link)
        return {}

    @override
    async def reset(self) -> None:
        self._check()
        if self._relay is not None:
            await self._relay.links.reset()
        await self._losses.reset()
        await trio.to_thread.run_sync(self._links.reset)

    def has_fault(self, link: Link) -> bool:
        """Return whether Toxiproxy has a fault on the link now."""
        return self._links.has_fault(link)

    @override
    def troubles(self) -> tuple[str, ...]:
        try:
            self._check()
        except HarnessError as trouble:
            return (str(trouble),)
        return ()

    def close(self) -> None:
        """End the connection to Toxiproxy."""
        self._api.close()

    def _check(self) -> None:
        """Raise HarnessError if Toxiproxy or the relay that parses Kafka requests has ended: since then their links are
        cut.
        """
        self._container.check_engine()
        if self._relay is not None:
            self._relay.check()
        if (death := self._container.death) is not None:
            raise HarnessError(f"Toxiproxy ended with {exit_text(death)}, which nobody asked it to: every link is cut")

    async def _wait_ready(self, log: Path) -> None:
        with trio.move_on_after(READY_S):
            while self._container.death is None:
                try:
                    await trio.to_thread.run_sync(self._api.version)
                    return
                except ToxiproxyError:
                    await trio.sleep(POLL_S)
        death = self._container.death
        how = f"ended with {exit_text(death)}" if death else "does not answer"
        raise HarnessError(f"Toxiproxy {how}; it last said:\n{last_words(log)}")
