"""A runtime that says it acts and does nothing: what a fault looks like that was switched off under the nemesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall.chaos.runtimes.contract import DiskFault, Evidence, Link, LinkFault, Runtime


class Pretending:
    """Acts on links and disks go nowhere, though each says that it was done; everything else is the runtime's own."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def fault_link(self, name: str, link: Link, fault: LinkFault) -> Evidence:
        """As if."""
        return {"link": str(link), "fault": {"kind": type(fault).__name__}, "asked_ns": 1, "began_ns": 2}

    async def heal_link(self, name: str, link: Link) -> Evidence:
        """As if."""
        return {"link": str(link), "asked_ns": 1, "ended_ns": 2, "hits": 0}

    async def reset_links(self, links: Sequence[Link]) -> Evidence:
        """As if."""
        return {"reset": None, "t_ns": 1}

    async def fault_disk(self, name: str, node: int, fault: DiskFault) -> Evidence:
        """As if."""
        return {"began_ns": 1}

    async def heal_disk(self, name: str, node: int) -> Evidence:
        """As if."""
        return {"hits": 0, "ended_ns": 2}
