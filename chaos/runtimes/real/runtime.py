"""Implements a runtime of real brokers. It delegates to separate objects for brokers, links, disks, CPUs and clocks.

The `ClusterBackend` decides whether the brokers run as OS processes or in containers: it makes and starts them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

import trio

from squall.broker.env import Env, Transport
from squall.broker.overriding import override
from squall.broker.real_env import RealEnv
from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.capabilities import CallCountingRuntime, ClockFakingRuntime
from squall.chaos.runtimes.contract import (
    NOISE_MS,
    ClockReport,
    CrashOp,
    DiskFault,
    Evidence,
    Link,
    LinkFault,
    NodeExit,
    NodeState,
    ProbeResult,
    Runtime,
    RuntimeCapability,
)
from squall.chaos.runtimes.damage import How, Where
from squall.chaos.runtimes.layout import INTERNAL, AddressLayout
from squall.chaos.runtimes.real import inquiry
from squall.chaos.runtimes.real.blueprint import Blueprint
from squall.chaos.runtimes.real.brokers import Brokers, exits_of, shut_down_all, state_of
from squall.chaos.runtimes.real.clocks import Clocks
from squall.chaos.runtimes.real.cpus import CpuLimiter
from squall.chaos.runtimes.real.disks import Disks
from squall.chaos.runtimes.real.links import LinkProxies, Links
from squall.chaos.runtimes.real.readiness import silent_links, wait_until_all_see_all
from squall.chaos.runtimes.wire.frames import BrokerTrafficKind

READY_S = 60.0
HEAL_S = 15.0


class ClusterBackend(Protocol):
    """Makes, starts and ends the brokers, their proxies, and everything that they need: OS processes or containers."""

    brokers: Brokers
    """Holds the cluster's brokers, by id; `make` fills it."""

    async def make(self) -> tuple[AddressLayout, LinkProxies | None]:
        """Prepare the cluster: fill `brokers` and start the proxies, but start no broker. Returns the cluster's
        addresses, and the proxies of its links (None if links have no proxies). Raise PreconditionError if something
        that the cluster needs is missing, such as a program or a free port.
        """

    async def start_node(self, node: int, ready_s: float) -> Evidence:
        """Start a node that is down, and wait at most `ready_s` seconds until it is ready. Evidence: pid, incarnation
        (its number), asked_ns, ready_ns.
        """

    async def bring_up(self, nodes: Sequence[int], ready_s: float) -> None:
        """Start nodes together and wait until each is ready. Raises the first error."""

    async def end(self) -> None:
        """End everything that was made, by force if it still runs."""


class RealRuntime(Runtime, CallCountingRuntime, ClockFakingRuntime):
    """Runs a cluster of real brokers. A cluster that starts again in the same folder keeps its data.

    Files are below the blueprint's folder: nodes/N/{broker.properties, broker.log, trace.jsonl, data/}, toxiproxy.log.
    seed: for random choices in disk faults and power losses.
    """

    noise_ms = NOISE_MS

    def __init__(
        self,
        name: str,
        plan: Blueprint,
        backend: ClusterBackend,
        *,
        acts: frozenset[RuntimeCapability],
        clocks: Clocks,
        cpus: CpuLimiter,
        seed: int,
    ) -> None:
        self.name, self.acts, self.seed = name, acts, seed
        self.nodes, self.controllers, self.zones = plan.nodes, plan.controllers, plan.zones
        self.backend = backend
        self._plan, self._clocks, self._cpus = plan, clocks, cpus
        self._brokers = backend.brokers
        self._disks = Disks(backend.brokers, seed)
        self._lock: IO[str] | None = None
        self._layout: AddressLayout | None = None
        self._links: Links | None = None
        self._stopped = False

    # ------------------------------------------------------------------------------------------------------- life

    @override
    async def start(self) -> None:
        """Start every node. If this fails, everything that was started is ended. Raise PreconditionError if something
        that the cluster needs is missing, such as a program or a free port, or if another cluster runs in its folder.
        """
        assert self._lock is None, "a runtime is started once"
        self._lock = self._plan.lock()
        try:
            layout, proxies = await self.backend.make()
            self._layout, self._links = layout, Links(layout.ways, proxies)
            await self.backend.bring_up(self.nodes, READY_S)
            waited = {Link(zone, node): layout.address(Link(zone, node)) for zone in self.zones for node in self.nodes}
            if not await wait_until_all_see_all(waited, self.nodes, self.exits, READY_S):
                where = f"{self._plan.folder}/nodes"
                raise HarnessError(f"the brokers did not all see each other within {READY_S:g} s: see {where}")
        except BaseException:
            await self.stop()
            raise

    @override
    async def stop(self) -> None:
        """End the cluster. Shielded from cancellation, so that an interrupted run also ends its cluster."""
        if self._lock is None or self._stopped:
            return
        self._stopped = True
        with trio.CancelScope(shield=True), self._lock:
            try:
                if self._links is not None:
                    with contextlib.suppress(HarnessError):
                        # Without faults first: a broker that reaches no controller has no controlled shutdown.
                        await self._links.heal_all()
                await shut_down_all(self._brokers)
            finally:
                await self.backend.end()

    @override
    def env(self, name: str) -> Env:
        """Return the environment for harness and client code: this machine's clock, files and network. `name` becomes
        `Env.name`.
        """
        return RealEnv(name)

    @override
    def bootstrap(self, zone: str) -> str:
        if zone not in (*self.zones, INTERNAL):
            raise PreconditionError(f"there is no zone {zone!r}, only {', '.join(self.zones)}")
        return self._placed().bootstrap(zone)

    @override
    def links(self) -> tuple[Link, ...]:
        return self._plan.links()

    # ------------------------------------------------------------------------------------------------------- nodes

    @override
    def state(self, node: int) -> NodeState:
        return state_of(self._brokers[node])

    @override
    def exits(self) -> tuple[NodeExit, ...]:
        return exits_of(self._brokers)

    @override
    def troubles(self) -> tuple[str, ...]:
        return self._links.troubles() if self._links is not None else ()

    @override
    async def kill(self, node: int) -> Evidence:
        return await self._brokers[node].kill()

    @override
    async def stop_node(self, node: int, *, grace_s: float = 30.0) -> Evidence:
        return await self._brokers[node].stop(grace_s)

    @override
    async def start_node(self, node: int) -> Evidence:
        return await self.backend.start_node(node, READY_S)

    @override
    async def software(self, node: int) -> Evidence:
        found = await self._brokers[node].software()
        return {**found, "speaks": await inquiry.speaks(*self._placed().direct[INTERNAL, node])}

    @override
    async def upgrade_node(self, node: int) -> Evidence:
        return await self._brokers[node].upgrade()

    @override
    async def pause(self, node: int) -> Evidence:
        return await self._brokers[node].pause()

    @override
    async def resume(self, node: int) -> Evidence:
        return await self._brokers[node].resume()

    @override
    async def activity(self, node: int) -> Evidence:
        return await self._brokers[node].activity()

    # --------------------------------------------------------------------------------------------- clocks and CPUs

    @override
    async def set_clock(self, node: int, offset_ms: float, *, rate: float = 1.0) -> Evidence:
        return self._clocks.bend(node, offset_ms, rate)

    @override
    async def fake_time(self, node: int, offset_ms: float) -> Evidence:
        return self._clocks.fake(node, offset_ms)

    @override
    def clock_reports(self, node: int) -> Sequence[ClockReport]:
        return self._clocks.reports(node)

    @override
    async def slow_cpu(self, name: str, node: int, share: float) -> Evidence:
        return await self._cpus.slow(name, node, share)

    @override
    async def heal_cpu(self, name: str, node: int) -> Evidence:
        return await self._cpus.heal(name, node)

    # ------------------------------------------------------------------------------------------- disks and power

    @override
    async def power_loss(self, nodes: Sequence[int]) -> Evidence:
        return await self._disks.lose_power(nodes)

    @override
    async def crash_at(self, node: int, op: CrashOp, nth: int, *, within_s: float) -> Evidence:
        return await self._disks.crash_at(node, op, nth, within_s)

    @override
    def calls(self, node: int, op: CrashOp) -> int:
        return self._disks.calls(node, op)

    @override
    async def fault_disk(self, name: str, node: int, fault: DiskFault) -> Evidence:
        return await self._disks.fault(name, node, fault)

    @override
    async def heal_disk(self, name: str, node: int) -> Evidence:
        return await self._disks.heal(name, node)

    @override
    async def rot(self, node: int, *, path_glob: str = "*.log", bits: int = 1, where: Where = "checked") -> Evidence:
        return await self._disks.rot(node, path_glob, bits, where)

    @override
    async def damage(self, node: int, how: How, *, size: int = 1000) -> Evidence:
        return await self._disks.damage(node, how, size)

    # ------------------------------------------------------------------------------------------------------- links

    @override
    async def fault_link(self, name: str, link: Link, fault: LinkFault) -> Evidence:
        return await self._linked().fault(name, link, fault)

    @override
    async def heal_link(self, name: str, link: Link) -> Evidence:
        return await self._linked().heal(name, link)

    @override
    async def reset_links(self, links: Sequence[Link]) -> Evidence:
        return await self._linked().reset(links)

    @override
    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
        return await self._linked().probe(link, timeout_s, pad_bytes)

    async def connect(self, link: Link) -> Transport:
        """Open a connection over a link, with the link's faults. If the link's source dials several addresses, the
        first is used. Raises OSError if the connection is refused.
        """
        return await self.env("prober").connect(*self._linked().way(link))

    async def probe_traffic(self, link: Link, traffic: BrokerTrafficKind, *, timeout_s: float = 1.0) -> ProbeResult:
        """Open a connection over a link, and time one request of a kind that brokers send: to the leader of a partition
        (REPLICATION) or to a controller (CONTROLLER). So the probe meets faults that act on this kind of traffic only.
        """
        return await self._linked().probe_traffic(link, traffic, timeout_s)

    @override
    async def ending(
        self, link: Link, *, timeout_s: float = 1.0, spoil: bool = False, opened: Callable[[], None] = lambda: None
    ) -> ProbeResult:
        return await self._linked().ending(link, timeout_s, spoil, opened)

    # --------------------------------------------------------------------------------------------------- the whole

    @override
    async def heal(self) -> Evidence:
        await self._linked().heal_all()
        # Before the disks are healed: a paused broker does not confirm that a fault is off.
        resumed = [node for node in self.nodes if self.state(node) is NodeState.PAUSED]
        for node in resumed:
            await self.resume(node)
        await self._disks.heal_all()
        await self._cpus.heal_all()
        self._clocks.heal()
        # Last, so that a starting broker meets no fault.
        down = [node for node in self.nodes if self.state(node) is NodeState.DOWN]
        await self.backend.bring_up(down, READY_S)
        failed = await silent_links(self, HEAL_S)
        return {
            "resumed": resumed,
            "started": down,
            "links": len(self.links()),
            "failed": [str(link) for link in failed],
        }

    @override
    def files(self) -> Mapping[str, bytes]:
        """Return nothing: the files are in the run directory already."""
        return {}

    @override
    def trace_path(self, node: int) -> Path:
        return self._plan.files(node).trace

    @override
    def log_path(self, node: int) -> Path:
        return self._plan.files(node).log

    @override
    def data_path(self, node: int) -> Path:
        return self._plan.files(node).data

    def _placed(self) -> AddressLayout:
        assert self._layout is not None, "the runtime was not started"
        return self._layout

    def _linked(self) -> Links:
        assert self._links is not None, "the runtime was not started"
        return self._links
