"""The one Toxiproxy process that every link of a run goes through."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import trio

from chaos.errors import HarnessError
from chaos.layout import Address, proxy_name, shown
from chaos.proxied_links import ProxiedLinks
from chaos.runtimes.contract import Link, LinkFault
from chaos.runtimes.process.child import POLL_S, Child, start
from chaos.runtimes.process.ports import LOOPBACK
from chaos.runtimes.process.registry import Registration
from chaos.toxiproxy_api import ToxiproxyApi, ToxiproxyError

READY_S = 10.0
END_S = 2.0

Routes = Mapping[Link, tuple[Address, Address]]
"""Each link's proxy: what its source dials, and where that leads to."""


class Proxies:
    """Toxiproxy and its links, for trio: each call waits in a thread.

    A link of a broker that listens for its peers twice is two proxies, one in each of two families: they are hurt and
    healed together.
    """

    def __init__(self, child: Child, api: ToxiproxyApi, links: Sequence[ProxiedLinks]) -> None:
        self._child = child
        self._api = api
        self._links = links

    @classmethod
    async def start(
        cls,
        program: Path,
        *,
        api_port: int,
        families: Sequence[Routes],
        log: Path,
        registration: Registration,
    ) -> Proxies:
        """Start it with a proxy for each link of each family. Raises HarnessError."""
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
            # Nobody has it yet who could stop it.
            child.signal(signal.SIGKILL)
            raise
        return cls(child, api, [ProxiedLinks(api, named) for named in names])

    async def add(self, name: str, link: Link, fault: LinkFault) -> None:
        """As `ProxiedLinks.add`."""
        for links in self._of(link):
            await trio.to_thread.run_sync(links.add, name, link, fault)

    async def remove(self, name: str, link: Link) -> None:
        """As `ProxiedLinks.remove`."""
        for links in self._of(link):
            await trio.to_thread.run_sync(links.remove, name, link)

    async def reset(self) -> None:
        """As `ProxiedLinks.reset`."""
        for links in self._links:
            await trio.to_thread.run_sync(links.reset)

    def hurt(self, link: Link) -> bool:
        """Whether there is a fault on it now."""
        return any(links.hurt(link) for links in self._links)

    def _of(self, link: Link) -> list[ProxiedLinks]:
        """Those that the link is one of; the first one where none is, to say so."""
        return [links for links in self._links if links.has(link)] or [self._links[0]]

    async def stop(self) -> None:
        """End the process. Idempotent."""
        self._api.close()
        self._child.signal(signal.SIGTERM)
        if await self._child.ended(END_S) is None:
            self._child.signal(signal.SIGKILL)
            await self._child.ended(END_S)


async def _wait_ready(api: ToxiproxyApi, child: Child) -> None:
    with trio.move_on_after(READY_S):
        while child.code is None:
            try:
                await trio.to_thread.run_sync(api.version)
                return
            except ToxiproxyError:
                await trio.sleep(POLL_S)
    raise HarnessError(f"Toxiproxy does not answer; it last said:\n{child.last_words()}")
