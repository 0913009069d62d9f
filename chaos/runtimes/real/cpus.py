"""Defines how a runtime limits brokers to a share of a CPU."""

from __future__ import annotations

from typing import Protocol

from squall.chaos.runtimes.contract import Evidence


class CpuLimiter(Protocol):
    """Limits the CPU time of a cluster's brokers."""

    async def slow(self, name: str, node: int, share: float) -> Evidence:
        """Limit a broker to `share` of a CPU (0 to 1). Evidence: as `Runtime.slow_cpu`."""

    async def heal(self, name: str, node: int) -> Evidence:
        """Remove the limit of this name. Evidence: as `Runtime.heal_cpu`."""

    async def heal_all(self) -> None:
        """Remove every limit."""
