"""Implements the process runtime: one OS process per broker on loopback, every link through one real Toxiproxy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from squall.chaos.runtimes.contract import Link, RuntimeCapability
from squall.chaos.runtimes.process.backend import ProcessBackend, SquallSoftware
from squall.chaos.runtimes.process.cpu_share import ThrottlingCpuLimiter
from squall.chaos.runtimes.process.program import BROKER
from squall.chaos.runtimes.real.blueprint import blueprint
from squall.chaos.runtimes.real.clocks import FileClocks
from squall.chaos.runtimes.real.processes.ports import LOOPBACK
from squall.chaos.runtimes.real.runtime import RealRuntime
from squall.chaos.toolchain.cache import Say

ACTS = frozenset(
    {
        RuntimeCapability.KILL,
        RuntimeCapability.STOP,
        RuntimeCapability.PAUSE,
        RuntimeCapability.ROT,
        RuntimeCapability.SLOW,
    }
)
"""Lists the capabilities that every cluster of OS processes has; some options add more."""


class ProcessRuntime(RealRuntime):
    """Runs Squall brokers as OS processes.

    nodes, zones, settings, controllers: as in `blueprint`. proxied: False connects brokers and clients directly,
    without Toxiproxy; this is for development, and no link can carry a fault. client_port: the port of the first
    broker's listener for the first client zone; the other brokers' listeners have the next ports. None: free ports are
    chosen. framed: links that lead through the relay that parses Kafka requests, for protocol faults. program: the
    command that starts a broker; --config FILE is added to it. faulted: also add --faults FOLDER, so that disk faults
    and power losses work. seed: for the random choices of disk faults and power losses. second: a folder with a second
    version of the broker's package, to which brokers can be upgraded.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int | Sequence[int] = 3,
        zones: tuple[str, ...] = ("CLIENT",),
        settings: Mapping[str, str] | None = None,
        controllers: Sequence[int] | None = None,
        proxied: bool = True,
        client_port: int | None = None,
        client_host: str = LOOPBACK,
        program: tuple[str, ...] = BROKER,
        faulted: bool = False,
        seed: int = 0,
        framed: Sequence[Link] = (),
        second: Path | None = None,
        say: Say = lambda line: None,
    ) -> None:
        plan = blueprint(folder, nodes, zones, settings, controllers)
        software = SquallSoftware(
            proxied=proxied,
            client_port=client_port,
            client_host=client_host,
            program=program,
            faulted=faulted,
            second=second,
        )
        framed = framed if proxied else ()
        backend = ProcessBackend(plan, software, proxied=proxied, framed=framed, say=say)
        acts = (
            ACTS
            | {RuntimeCapability.CLOCK}
            | ({RuntimeCapability.LINK} if proxied else set())
            | ({RuntimeCapability.FRAMES} if framed else set())
        )
        acts |= {RuntimeCapability.POWER_LOSS, RuntimeCapability.CRASH, RuntimeCapability.DISK} if faulted else set()
        acts |= {RuntimeCapability.UPGRADE} if second is not None else set()
        clocks, cpus = FileClocks(backend.brokers), ThrottlingCpuLimiter(backend.brokers)
        super().__init__("process", plan, backend, acts=acts, clocks=clocks, cpus=cpus, seed=seed)
