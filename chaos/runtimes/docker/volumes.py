"""Brokers' data on volumes of a bounded size, which can really be full.

A volume is in memory, and its engine forgets what is in it once no running container has it: Toxiproxy's container has
all of them for the whole run. What they hold comes into the nodes' folders when the run is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from chaos.runtimes.docker.container import in_thread
from chaos.toolchain.engine import Engine, EngineError, Mount

DATA, INSIDE = "/node/data", "/volumes"
"""Where a broker has its own, and where Toxiproxy's container has all of them."""


class Volumes:
    """One per broker. None of `size_bytes` 0."""

    def __init__(self, engine: Engine, run: str, nodes: Sequence[int], size_bytes: int) -> None:
        self._engine, self._size_bytes = engine, size_bytes
        self._names = {node: f"squall-{run}-data-{node}" for node in nodes} if size_bytes else {}

    async def make(self, labels: Mapping[str, str]) -> None:
        """Have the engine make them."""
        for name in self._names.values():
            await in_thread(self._engine.make_volume, name, self._size_bytes, labels)

    def of_broker(self, node: int) -> tuple[Mount, ...]:
        """As its container has it."""
        return (Mount(self._names[node], DATA),) if node in self._names else ()

    def of_keeper(self) -> tuple[Mount, ...]:
        """As Toxiproxy's container has all of them."""
        return tuple(Mount(name, f"{INSIDE}/{node}/data") for node, name in self._names.items())

    async def bring(self, keeper: str, folders: Mapping[int, Path]) -> list[EngineError]:
        """Put what they hold into the nodes' folders. What could not be, is returned."""
        troubles = []
        for node in self._names:
            try:
                await in_thread(self._engine.copy_out, keeper, f"{INSIDE}/{node}/data", folders[node])
            except EngineError as trouble:
                troubles.append(trouble)
        return troubles
