"""Limits the docker runtime's brokers to a share of a CPU by the quota of their container's control group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from squall.broker.overriding import override
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import Evidence
from squall.chaos.runtimes.docker.container import Container
from squall.chaos.runtimes.real.cpus import CpuLimiter


@dataclass(slots=True)
class QuotaUsage:
    """Holds measurements of CPU limits: how long they were on, the CPU time used, and in how many periods the quota ran
    out.
    """

    lasted_s: float = 0.0
    cpu_s: float = 0.0
    stops: int = 0


@dataclass(slots=True)
class CpuQuota:
    """Holds the CPU limits of one broker by name, and the CPU time that its container uses while any limit is on.

    The kernel's counters restart from 0 at each start of a container. If the container ends without an order of the
    harness, the counters' values are lost.
    """

    whole: float
    """Gives the number of CPUs that the broker may use while no limit is on."""
    shares: dict[str, float] = field(default_factory=dict)
    _measured: QuotaUsage = field(default_factory=QuotaUsage)
    _since: tuple[float, float, int] | None = None
    """Holds the kernel's counters at the beginning of the present measurement: time, CPU seconds used, and periods in
    which the quota ran out. None: nothing is being measured.
    """

    async def begin(self, container: Container) -> None:
        """Begin to measure; does nothing if there is no limit or the container is down."""
        # A container that was never started has no counters.
        if self.shares and container.death is None and container.starts:
            self._since = (time.monotonic(), *await container.cpu())

    async def end(self, container: Container) -> None:
        """End the measurement that `begin` began, and add its CPU usage to the total; nothing if none is running."""
        if self._since is not None:
            since, self._since = self._since, None
            if container.death is None:
                cpu_s, stops = await container.cpu()
                self._measured.lasted_s += time.monotonic() - since[0]
                self._measured.cpu_s += cpu_s - since[1]
                self._measured.stops += stops - since[2]

    async def change(self, container: Container, name: str, share: float | None) -> QuotaUsage:
        """Add the limit `name`, or remove it if `share` is None. Return zeros while any limit remains; once none is
        left, return the usage since the first limit.
        """
        await self.end(container)
        if share is not None:
            self.shares[name] = share
        else:
            self.shares.pop(name, None)
        await container.set_cpus(min(self.shares.values(), default=self.whole))
        await self.begin(container)
        if self.shares:
            return QuotaUsage()
        measured, self._measured = self._measured, QuotaUsage()
        return measured


class CpuLimitedBroker(Protocol):
    """Represents a broker whose container `QuotaCpuLimiter` limits."""

    quota: CpuQuota

    @property
    def container(self) -> Container:
        """Return the container whose CPU is limited."""


class QuotaCpuLimiter(CpuLimiter):
    """Limits brokers' CPU time by the quota of their containers' control groups."""

    def __init__(self, nodes: Mapping[int, CpuLimitedBroker]) -> None:
        self._nodes = nodes

    @override
    async def slow(self, name: str, node: int, share: float) -> Evidence:
        found = self._nodes[node]
        if name in found.quota.shares:
            raise HarnessError(f"broker {node} already has a fault named {name}")
        await found.quota.change(found.container, name, share)
        return {"by": "CPU quota", "share": share, "began_ns": time.monotonic_ns()}

    @override
    async def heal(self, name: str, node: int) -> Evidence:
        """Remove the limit of this name. Evidence: as `Runtime.heal_cpu`; `stops` counts the periods in which the quota
        ran out.

        A quota reports only the CPU time used, and not how long it let a broker run. So `ran_share` is the same as
        `cpu_share`.
        """
        found = self._nodes[node]
        measured = await found.quota.change(found.container, name, None)
        share = round(measured.cpu_s / (measured.lasted_s or 1.0), 3)
        told: Evidence = {"stops": measured.stops, "ran_share": share, "cpu_share": share}
        return {**told, "ended_ns": time.monotonic_ns()}

    @override
    async def heal_all(self) -> None:
        for node in self._nodes.values():
            for name in list(node.quota.shares):
                await node.quota.change(node.container, name, None)
