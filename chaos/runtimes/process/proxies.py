"""The one Toxiproxy process that every link of a run goes through."""

from __future__ import annotations

import signal
from collections.abc import Mapping
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


class Proxies:
    """Toxiproxy and its links, for trio: each call waits in a thread."""

    def __init__(self, child: Child, api: ToxiproxyApi, links: ProxiedLinks) -> None:
        self._child = child
        self._api = api
        self._links = links

    @classmethod
    async def start(
        cls,
        program: Path,
        *,
        api_port: int,
        routes: Mapping[Link, tuple[Address, Address]],
        log: Path,
        registration: Registration,
    ) -> Proxies:
        """Start it with a proxy for each link: (what its source dials, where it leads to). Raises HarnessError."""
        command = [str(program), "-host", LOOPBACK, "-port", str(api_port)]
        child = start("toxiproxy", command, log=log, registration=registration, env={"LOG_LEVEL": "warn"})
        api = ToxiproxyApi(LOOPBACK, api_port)
        try:
            await _wait_ready(api, child)
            wanted = [(proxy_name(link), shown(listen), shown(to)) for link, (listen, to) in routes.items()]
            await trio.to_thread.run_sync(api.populate, wanted)
        except BaseException:
            # Nobody has it yet who could stop it.
            child.signal(signal.SIGKILL)
            raise
        return cls(child, api, ProxiedLinks(api, {link: proxy_name(link) for link in routes}))

    async def add(self, name: str, link: Link, fault: LinkFault) -> None:
        """As `ProxiedLinks.add`."""
        await trio.to_thread.run_sync(self._links.add, name, link, fault)

    async def remove(self, name: str, link: Link) -> None:
        """As `ProxiedLinks.remove`."""
        await trio.to_thread.run_sync(self._links.remove, name, link)

    async def reset(self) -> None:
        """As `ProxiedLinks.reset`."""
        await trio.to_thread.run_sync(self._links.reset)

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
