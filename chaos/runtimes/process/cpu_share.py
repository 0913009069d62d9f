"""Brokers of the process runtime that get a share of a CPU only."""

from __future__ import annotations

import time
from collections.abc import Mapping

import trio

from chaos.errors import HarnessError
from chaos.runtimes.contract import Evidence
from chaos.runtimes.process.node import Node


class Slowing:
    """Part of `chaos.runtimes.contract.Runtime`."""

    _nodes: Mapping[int, Node]

    def _node(self, node: int) -> Node:
        raise NotImplementedError

    async def slow_cpu(self, name: str, node: int, share: float) -> Evidence:
        """As `Runtime.slow_cpu`: SIGSTOP and SIGCONT in turn, ten times a second, by the harness."""
        found = self._node(node)
        if name in found.slowed:
            raise HarnessError(f"broker {node} already has a fault named {name}")
        found.slowed[name] = share
        await trio.to_thread.run_sync(found.throttle)
        return {"by": "SIGSTOP and SIGCONT", "share": share, "began_ns": time.monotonic_ns()}

    async def heal_cpu(self, name: str, node: int) -> Evidence:
        """As `Runtime.heal_cpu`."""
        found = self._node(node)
        found.slowed.pop(name, None)
        measured = await trio.to_thread.run_sync(found.throttle)
        lasted_s = measured.lasted_s or 1.0
        return {
            "stops": measured.stops,
            "ran_share": round(1.0 - measured.stopped_s / lasted_s, 3),
            "cpu_share": round(measured.cpu_s / lasted_s, 3),
            "ended_ns": time.monotonic_ns(),
        }

    async def _heal_cpus(self) -> None:
        for node in self._nodes.values():
            node.slowed.clear()
            await trio.to_thread.run_sync(node.throttle)
