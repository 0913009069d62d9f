"""What a runtime has that lets its brokers have a share of a CPU only."""

from __future__ import annotations

from typing import Protocol

from chaos.runtimes.contract import Evidence


class Cpus(Protocol):
    """The CPUs of a cluster's brokers."""

    async def slow(self, name: str, node: int, share: float) -> Evidence:
        """As `Runtime.slow_cpu`."""

    async def heal(self, name: str, node: int) -> Evidence:
        """As `Runtime.heal_cpu`."""

    async def heal_all(self) -> None:
        """No broker has less than its share any more."""
