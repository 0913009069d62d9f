"""How a runtime limits the CPU share of its brokers."""

from __future__ import annotations

from typing import Protocol

from squall.chaos.runtimes.contract import Evidence


class Cpus(Protocol):
    """The CPUs of a cluster's brokers."""

    async def slow(self, name: str, node: int, share: float) -> Evidence:
        """As `Runtime.slow_cpu`."""

    async def heal(self, name: str, node: int) -> Evidence:
        """As `Runtime.heal_cpu`."""

    async def heal_all(self) -> None:
        """Remove every limit."""
