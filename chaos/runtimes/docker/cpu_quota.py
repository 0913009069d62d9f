"""Brokers of the docker runtime that get a share of a CPU only: by the quota of their container's control group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from chaos.errors import HarnessError
from chaos.runtimes.contract import Evidence
from chaos.runtimes.docker.container import Container


@dataclass(slots=True)
class Measured:
    """What came of it: for how long it was on, the CPU time in it, and in how many periods the quota ran out."""

    lasted_s: float = 0.0
    cpu_s: float = 0.0
    stops: int = 0


@dataclass(slots=True)
class Quota:
    """The shares of one broker by their names, and what is measured while there is any.

    The kernel counts anew for each start of a container: an end that nobody asked for takes what it counted with it.
    """

    whole: float
    """CPUs without any."""
    shares: dict[str, float] = field(default_factory=dict)
    _measured: Measured = field(default_factory=Measured)
    _since: tuple[float, float, int] | None = None
    """Time, CPU seconds and stops at which the present stretch began."""

    async def begin(self, container: Container) -> None:
        """Count from here; nothing where there is no share or the container is down."""
        if self.shares and container.death is None and container.starts:
            self._since = (time.monotonic(), *await container.cpu())

    async def end(self, container: Container) -> None:
        """Add up what was counted since."""
        if self._since is not None:
            since, self._since = self._since, None
            if container.death is None:
                cpu_s, stops = await container.cpu()
                self._measured.lasted_s += time.monotonic() - since[0]
                self._measured.cpu_s += cpu_s - since[1]
                self._measured.stops += stops - since[2]

    async def change(self, container: Container, name: str, share: float | None) -> Measured:
        """Put a share on, or take the one of this name off (None). What was measured, once none is left."""
        await self.end(container)
        if share is not None:
            self.shares[name] = share
        else:
            self.shares.pop(name, None)
        await container.set_cpus(min(self.shares.values(), default=self.whole))
        await self.begin(container)
        if self.shares:
            return Measured()
        measured, self._measured = self._measured, Measured()
        return measured


class Slowed(Protocol):
    """What is needed of a runtime's node."""

    quota: Quota

    @property
    def container(self) -> Container:
        """Its container."""


class QuotaCpus:
    """As `chaos.runtimes.real.cpus.Cpus`."""

    def __init__(self, nodes: Mapping[int, Slowed]) -> None:
        self._nodes = nodes

    async def slow(self, name: str, node: int, share: float) -> Evidence:
        """As `Cpus.slow`."""
        found = self._nodes[node]
        if name in found.quota.shares:
            raise HarnessError(f"broker {node} already has a fault named {name}")
        await found.quota.change(found.container, name, share)
        return {"by": "CPU quota", "share": share, "began_ns": time.monotonic_ns()}

    async def heal(self, name: str, node: int) -> Evidence:
        """As `Cpus.heal`. stops: periods in which the quota ran out.

        A quota does not tell for how long it let a broker run, only what CPU time it had: `ran_share` is `cpu_share`.
        """
        found = self._nodes[node]
        measured = await found.quota.change(found.container, name, None)
        share = round(measured.cpu_s / (measured.lasted_s or 1.0), 3)
        told: Evidence = {"stops": measured.stops, "ran_share": share, "cpu_share": share}
        return {**told, "ended_ns": time.monotonic_ns()}

    async def heal_all(self) -> None:
        """As `Cpus.heal_all`."""
        for node in self._nodes.values():
            for name in list(node.quota.shares):
                await node.quota.change(node.container, name, None)
