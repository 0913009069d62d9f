"""Stores brokers' data on volumes of a bounded size, so that a disk can really be full.

A volume is in memory, and the engine drops its content once no running container mounts it. Therefore Toxiproxy's
container mounts all volumes for the whole run. At the end, their content is copied into the nodes' folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from squall.chaos.runtimes.docker.container import in_thread
from squall.chaos.toolchain.engine import ContainerMount, DockerEngine, EngineError

DATA, INSIDE = "/node/data", "/volumes"
"""Give two paths. DATA is where a broker's container mounts its volume; INSIDE is the folder in Toxiproxy's container
below which all volumes are mounted.
"""


class Volumes:
    """Holds one volume for each broker; there are none if `size_bytes` is 0."""

    def __init__(self, engine: DockerEngine, run: str, nodes: Sequence[int], size_bytes: int) -> None:
        self._engine, self._size_bytes = engine, size_bytes
        self._names = {node: f"squall-{run}-data-{node}" for node in nodes} if size_bytes else {}

    async def make(self, labels: Mapping[str, str]) -> None:
        """Create the volumes in the engine."""
        for name in self._names.values():
            await in_thread(self._engine.make_volume, name, self._size_bytes, labels)

    def broker_mounts(self, node: int) -> tuple[ContainerMount, ...]:
        """Return the mount of the broker's volume in its container; empty if there are no volumes."""
        return (ContainerMount(self._names[node], DATA),) if node in self._names else ()

    def proxy_mounts(self) -> tuple[ContainerMount, ...]:
        """Return the mounts for Toxiproxy's container, which has all volumes."""
        return tuple(ContainerMount(name, f"{INSIDE}/{node}/data") for node, name in self._names.items())

    async def bring(self, keeper: str, folders: Mapping[int, Path]) -> list[EngineError]:
        """Copy the volumes' content into the nodes' folders, through the container `keeper`, which has all volumes
        mounted. Return the errors for volumes that could not be copied.
        """
        troubles = []
        for node in self._names:
            try:
                await in_thread(self._engine.copy_out, keeper, f"{INSIDE}/{node}/data", folders[node])
            except EngineError as trouble:
                troubles.append(trouble)
        return troubles
