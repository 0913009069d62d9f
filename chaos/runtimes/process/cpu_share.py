"""Limits the process runtime's brokers to a share of a CPU."""

from __future__ import annotations

import time
from collections.abc import Mapping

import trio

from squall.broker.overriding import override
from squall.chaos.errors import HarnessError
from squall.chaos.runtimes.contract import Evidence
from squall.chaos.runtimes.process.node import ProcessNode
from squall.chaos.runtimes.real.cpus import CpuLimiter


class ThrottlingCpuLimiter(CpuLimiter):
    """Limits brokers with SIGSTOP and SIGCONT, which the harness sends in turn, ten times a second."""

    def __init__(self, nodes: Mapping[int, ProcessNode]) -> None:
        self._nodes = nodes

    @override
    async def slow(self, name: str, node: int, share: float) -> Evidence:
        found = self._nodes[node]
        if name in found.slowed:
            raise HarnessError(f"broker {node} already has a fault named {name}")
        found.slowed[name] = share
        await trio.to_thread.run_sync(found.throttle)
        return {"by": "SIGSTOP and SIGCONT", "share": share, "began_ns": time.monotonic_ns()}

    @override
    async def heal(self, name: str, node: int) -> Evidence:
        found = self._nodes[node]
        found.slowed.pop(name, None)
        measured = await trio.to_thread.run_sync(found.throttle)
        lasted_s = measured.lasted_s or 1.0
        return {
            "stops": measured.stops,
            "ran_share": round(1.0 - measured.stopped_s / lasted_s, 3),
            "cpu_share": round(measured.cpu_s / lasted_s, 3),
            "ended_ns": time.monotonic_ns(),
        }

    @override
    async def heal_all(self) -> None:
        for node in self._nodes.values():
            node.slowed.clear()
            await trio.to_thread.run_sync(node.throttle)
