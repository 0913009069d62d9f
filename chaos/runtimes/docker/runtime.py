"""Implements the docker runtime: one container per broker, every link through one Toxiproxy in a container of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from squall.chaos.runtimes.contract import Link, RuntimeCapability
from squall.chaos.runtimes.docker.backend import BROKER_CPUS, BROKER_MEMORY, ContainerBackend, ContainerOptions
from squall.chaos.runtimes.docker.cpu_quota import QuotaCpuLimiter
from squall.chaos.runtimes.docker.node import BROKER
from squall.chaos.runtimes.real.blueprint import blueprint
from squall.chaos.runtimes.real.clocks import FileClocks
from squall.chaos.runtimes.real.runtime import RealRuntime
from squall.chaos.toolchain.cache import Say
from squall.chaos.toolchain.engine import ContainerMount, DockerEngine
from squall.chaos.toolchain.images import ImageNames

ACTS = frozenset(
    {
        RuntimeCapability.KILL,
        RuntimeCapability.STOP,
        RuntimeCapability.PAUSE,
        RuntimeCapability.CLOCK,
        RuntimeCapability.ROT,
        RuntimeCapability.SLOW,
        RuntimeCapability.LINK,
    }
)
"""Lists the capabilities that every cluster of containers has; some options add more."""


class DockerRuntime(RealRuntime):
    """Runs Squall brokers in containers.

    nodes: how many nodes, or their ids. zones: the client zones' names. settings: for every broker. controllers: the
    voters' ids; None chooses some of the nodes. seed: for random choices in disk faults and power losses. The other
    arguments are as in `ContainerOptions`.
    """

    def __init__(
        self,
        folder: Path,
        engine: DockerEngine,
        images: ImageNames,
        *,
        nodes: int | Sequence[int] = 3,
        zones: tuple[str, ...] = ("CLIENT",),
        settings: Mapping[str, str] | None = None,
        controllers: Sequence[int] | None = None,
        cpus: float = BROKER_CPUS,
        memory_bytes: int = BROKER_MEMORY,
        program: tuple[str, ...] = BROKER,
        mounts: Sequence[ContainerMount] = (),
        lossy: bool = False,
        framed: Sequence[Link] = (),
        faulted: bool = False,
        seed: int = 0,
        fake_time: bool = False,
        second: str | None = None,
        volume_bytes: int = 0,
        say: Say = lambda line: None,
    ) -> None:
        plan = blueprint(folder, nodes, zones, settings, controllers)
        options = ContainerOptions(
            cpus=cpus,
            memory_bytes=memory_bytes,
            program=program,
            mounts=mounts,
            lossy=lossy,
            framed=framed,
            faulted=faulted,
            fake_time=fake_time,
            second=second,
            volume_bytes=volume_bytes,
        )
        backend = ContainerBackend(plan, engine, images, options, say=say)
        acts = ACTS | ({RuntimeCapability.LOSS} if lossy else set()) | ({RuntimeCapability.FRAMES} if framed else set())
        acts |= {RuntimeCapability.POWER_LOSS, RuntimeCapability.CRASH, RuntimeCapability.DISK} if faulted else set()
        acts |= {RuntimeCapability.UPGRADE} if second is not None else set()
        clocks, cpus_of = backend.faked or FileClocks(backend.brokers), QuotaCpuLimiter(backend.brokers)
        self.run = backend.run
        """Is the run's id in the engine's labels."""
        super().__init__("docker", plan, backend, acts=acts, clocks=clocks, cpus=cpus_of, seed=seed)
