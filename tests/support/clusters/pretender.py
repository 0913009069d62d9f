"""A runtime that reports faults as injected and does not inject them: the nemesis must notice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall.chaos.runtimes.contract import DiskFault, Evidence, Link, LinkFault, Runtime


class Pretending:
    """Wraps a runtime. Faults of links and disks are only reported; everything else is the wrapped runtime's."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    async def fault_link(self, name: str, link: Link, fault: LinkFault) -> Evidence:
        """Report success, and do nothing."""
        return {"link": str(link), "fault": {"kind": type(fault).__name__}, "asked_ns": 1, "began_ns": 2}

    async def heal_link(self, name: str, link: Link) -> Evidence:
        """Report success, and do nothing."""
        return {"link": str(link), "asked_ns": 1, "ended_ns": 2, "hits": 0}

    async def reset_links(self, links: Sequence[Link]) -> Evidence:
        """Report success, and do nothing."""
        return {"reset": None, "t_ns": 1}

    async def fault_disk(self, name: str, node: int, fault: DiskFault) -> Evidence:
        """Report success, and do nothing."""
        return {"began_ns": 1}

    async def heal_disk(self, name: str, node: int) -> Evidence:
        """Report success, and do nothing."""
        return {"hits": 0, "ended_ns": 2}
