"""Defines how a runtime limits brokers to a share of a CPU."""

from __future__ import annotations

from typing import Protocol

from squall.chaos.runtimes.contract import Evidence


class CpuLimiter(Protocol):
    """Limits the CPU time of a cluster's brokers."""

    async def slow(self, name: str, node: int, share: float) -> Evidence:
        """Limit a broker to `share` of a CPU (0 to 1). Evidence: by (the mechanism that limits it), share, began_ns."""

    async def heal(self, name: str, node: int) -> Evidence:
        """Remove the limit of this name. Evidence: stops (how often the limit stopped the broker), ran_share (the share
        of the time in which the limit let it run), cpu_share (used CPU time divided by elapsed time), ended_ns. The
        figures are 0 while another limit is still on.
        """

    async def heal_all(self) -> None:
        """Remove every limit."""
