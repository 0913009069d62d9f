"""Runs the relay that parses Kafka requests (`frame_relay`) in its own container. Only links on which the plan puts
protocol faults lead through it, behind their Toxiproxy proxies.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import trio

from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import Link
from squall.chaos.runtimes.docker.addresses import CONTROL_PORT, FIRST_PROXY_PORT
from squall.chaos.runtimes.docker.container import POLL_S, Container, exit_text, last_words
from squall.chaos.runtimes.real.framed_links import FramedLinks, Routes, route_through_relay, routes_text

READY_S = 20.0
LOG_INSIDE, ROUTES_INSIDE = "/frame-relay.log", "/frame-relay.json"


def command() -> list[str]:
    """Return the command of the relay's container."""
    redirected = f'exec "$@" >>{LOG_INSIDE} 2>&1'
    return ["sh", "-c", redirected, "sh", "python", "-P", "-m", "squall.chaos.runtimes.real.frame_relay", ROUTES_INSIDE]


class RelayContainer:
    """Holds the relay's container, and the faults on its links (`links`)."""

    def __init__(self, container: Container, host: str, routes: Routes, framed: Collection[Link]) -> None:
        """Prepare the relay. routes: for each link, the address of its Toxiproxy proxy and the address to which the
        proxy leads. framed: the links to lead through the relay.
        """
        self.links = FramedLinks((host, CONTROL_PORT), framed)
        listening = ((host, FIRST_PROXY_PORT + at) for at in range(len(routes)))
        self.routes, through = route_through_relay(routes, framed, listening)
        """`self.routes` maps each link to its Toxiproxy proxy's address and the address to which the proxy leads: the
        relay for framed links, a broker for all others. `through` holds the relay's own routes.
        """
        self.text = routes_text((host, CONTROL_PORT), through)
        """Holds the JSON with which the relay is started."""
        self._container = container

    async def start(self, log: Path) -> None:
        """Start the relay. Raises HarnessError if the relay does not start."""
        await self._container.create()
        await self._container.start()
        with trio.move_on_after(READY_S):
            while self._container.death is None:
                if await self.links.ready():
                    return
                await trio.sleep(POLL_S)
        death = self._container.death
        how = f"ended with {exit_text(death)}" if death else "does not answer"
        raise HarnessError(f"the frame relay {how}; it last said:\n{last_words(log)}")

    def check(self) -> None:
        """Raise HarnessError if the relay has ended: since then its links are cut."""
        if (death := self._container.death) is not None:
            how = f"ended with {exit_text(death)}, which nobody asked it to"
            raise HarnessError(f"the frame relay {how}: its links are cut")
