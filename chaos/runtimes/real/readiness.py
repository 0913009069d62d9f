"""Waits until a cluster is whole: every broker knows every broker, and every link answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import trio

from squall.broker.protocol.errors import MalformedFrame
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import Link, NodeExit, ProbeResult
from squall.chaos.runtimes.layout import Address
from squall.chaos.runtimes.real.inquiry import visible_brokers

ASK_S = 1.0
ASK_EACH_S, PROBE_EACH_S = 0.02, 0.05


async def wait_until_all_see_all(
    addresses: Mapping[Link, Address],
    nodes: tuple[int, ...],
    exits: Callable[[], tuple[NodeExit, ...]],
    timeout_s: float,
) -> bool:
    """Ask the broker at the end of each link for Metadata until it lists all nodes. Returns False if that takes too
    long.

    Raises HarnessError if `exits` reports that a broker ended meanwhile.
    """
    with trio.move_on_after(timeout_s):
        for link, address in addresses.items():
            while not await _sees(address, frozenset(nodes)):
                for gone in exits():
                    raise HarnessError(
                        f"broker {gone.node} ended with {gone.code} while {link} was waited for:\n{gone.last_words}"
                    )
                await trio.sleep(ASK_EACH_S)
        return True
    return False


async def _sees(address: Address, nodes: frozenset[int]) -> bool:
    with trio.move_on_after(ASK_S):
        try:
            return await visible_brokers(*address) == nodes
        except (OSError, MalformedFrame):
            pass
    return False


class ProbedRuntime(Protocol):
    """Represents a runtime whose links can be probed: `silent_links` calls no other methods of a runtime."""

    def links(self) -> tuple[Link, ...]:
        """Return every link that can carry a fault."""

    async def probe(self, link: Link) -> ProbeResult:
        """Open a connection over a link, make one ApiVersions round trip, and return whether it succeeded and how long
        it took.
        """


async def silent_links(runtime: ProbedRuntime, within_s: float) -> list[Link]:
    """Probe every link until it answers. Returns the links that have not answered within `within_s`."""
    waiting = dict.fromkeys(runtime.links())

    async def try_one(link: Link) -> None:
        while not (await runtime.probe(link)).ok:
            await trio.sleep(PROBE_EACH_S)
        del waiting[link]

    with trio.move_on_after(within_s):
        async with trio.open_nursery() as nursery:
            for link in runtime.links():
                nursery.start_soon(try_one, link)
    return list(waiting)
