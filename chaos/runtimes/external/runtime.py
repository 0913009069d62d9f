"""Implements the runtime for a cluster that somebody else runs. Squall starts and ends none of it, except containers
that a plan acts on.

Squall's clients reach the cluster through Squall's own Toxiproxy, with one proxy for each broker. Whatever address a
broker advertises, these clients connect to its proxy instead. So faults can act on the links of these clients only.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NoReturn

import trio

from squall.broker.env import Env
from squall.broker.overriding import override
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.protocol.schema.metadata import MetadataRequest
from squall.broker.real_env import RealEnv, RealTransport
from squall.chaos.errors import HarnessError, PreconditionError
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
from squall.chaos.runtimes.external.container import AttachedContainer
from squall.chaos.runtimes.layout import Address, addresses, shown
from squall.chaos.runtimes.real import inquiry
from squall.chaos.runtimes.real.links import Links
from squall.chaos.runtimes.real.processes.ports import LOOPBACK, free_ports
from squall.chaos.runtimes.real.processes.proxies import ProcessProxies
from squall.chaos.runtimes.real.processes.registry import RunRegistration, claimed_ports, locked
from squall.chaos.runtimes.real.readiness import silent_links
from squall.chaos.toolchain.cache import Say
from squall.chaos.toolchain.engine import DockerEngine
from squall.chaos.toolchain.toxiproxy import toxiproxy_server
from squall.workloads.client import admin
from squall.workloads.client.client import Client
from squall.workloads.client.connection import RequestFailed, UnsupportedApi

ASK_S = 5.0
HEAL_S = 30.0
POLL_S = 0.1
DELETED = ("", "UNKNOWN_TOPIC_OR_PARTITION")


class DiscoveredCluster(dict[int, Address]):
    """Maps each broker id to the address that the broker advertises on the bootstrap servers' listener. `topics` holds
    the names of all topics of the cluster.
    """

    topics: frozenset[str] = frozenset()


async def discover(bootstrap: str) -> DiscoveredCluster:
    """Return the brokers and topics of a running cluster, as the first bootstrap server that answers lists them. Raise
    PreconditionError if no server answers, or if `bootstrap` is no address.
    """
    try:
        servers = addresses(bootstrap)
    except ValueError:
        raise PreconditionError(f"--bootstrap {bootstrap}: HOST:PORT is wanted, as in localhost:9092") from None
    why = "no address was given"
    for host, port in servers:
        try:
            with trio.fail_after(ASK_S):
                # None asks for all topics, an empty list for none.
                seen = await inquiry.ask(host, port, MetadataRequest(topics=None), inquiry.METADATA_VERSION)
        except (OSError, MalformedFrame, trio.TooSlowError) as trouble:
            why = f"{host}:{port}: {str(trouble) or 'no answer'}"
            continue
        found = DiscoveredCluster({broker.node_id: (broker.host, broker.port) for broker in seen.brokers})
        found.topics = frozenset(topic.name for topic in seen.topics)
        return found
    raise PreconditionError(f"--bootstrap {bootstrap}: no broker answers: {why}")


class ProxiedEnv(RealEnv):
    """Gives Squall's clients the clock, files and network of this machine. A connection to a broker's advertised
    address leads to the broker's proxy instead; `proxies` maps the advertised address to the proxy's.
    """

    def __init__(self, node: str, proxies: Mapping[Address, Address]) -> None:
        super().__init__(node)
        self._proxies = proxies

    @override
    async def connect(self, host: str, port: int) -> RealTransport:
        # A broker that has joined since the start has no proxy.
        return await super().connect(*self._proxies.get((host, port), (host, port)))


class ExternalRuntime(Runtime):
    """Attaches to a cluster given by its bootstrap servers.

    nodes: its broker ids when the plan was made. containers: broker id -> container, for the brokers that a plan may
    act on. topics: the topics that the run makes. None of these may exist before the run; they are deleted at the end.
    """

    name = "external"
    noise_ms = NOISE_MS

    def __init__(
        self,
        folder: Path,
        *,
        bootstrap: str,
        nodes: tuple[int, ...],
        topics: Sequence[str],
        zones: tuple[str, ...] = ("CLIENT",),
        engine: DockerEngine | None = None,
        containers: Mapping[int, str] | None = None,
        say: Say = lambda line: None,
    ) -> None:
        self.nodes, self.controllers, self.zones = nodes, (), zones
        self.acts = frozenset(
            {RuntimeCapability.LINK}
            | ({RuntimeCapability.KILL, RuntimeCapability.STOP, RuntimeCapability.PAUSE} if containers else set())
        )
        self._folder, self._bootstrap, self._topics, self._say = folder.absolute(), bootstrap, frozenset(topics), say
        self._engine, self._containers = engine, dict(containers or {})
        self._theirs: dict[int, AttachedContainer] = {}
        self._registration: RunRegistration | None = None
        self._proxies: ProcessProxies | None = None
        self._links: Links | None = None
        self._advertised: dict[int, Address] = {}
        self._listening: dict[int, Address] = {}

    @override
    async def start(self) -> None:
        """Start Squall's proxies, and no broker. Raise PreconditionError if the cluster is not the one that the plan
        was made for.
        """
        server = await trio.to_thread.run_sync(toxiproxy_server, self._say)
        found = await discover(self._bootstrap)
        if set(found) != set(self.nodes):
            planned, there = ", ".join(map(str, self.nodes)), ", ".join(map(str, sorted(found)))
            raise PreconditionError(f"{self._bootstrap}: the plan is for brokers {planned}; there are {there}")
        if taken := sorted(self._topics & found.topics):
            raise PreconditionError(
                f"the cluster has topics that the run would make: {', '.join(taken)}; delete them first"
            )
        self._advertised = dict(found)
        self._registration = RunRegistration(f"{self._folder.name}-{os.getpid()}-{os.urandom(4).hex()}", self._folder)
        if self._engine is not None:
            self._theirs = {
                node: AttachedContainer(node, self._engine, container, self._advertised[node], self._registration)
                for node, container in self._containers.items()
            }
        with locked():
            api_port, *ports = free_ports(len(self.nodes) + 1, claimed_ports(), random.Random())
            self._registration.claim_ports([api_port, *ports])
        self._listening = {node: (LOOPBACK, port) for node, port in zip(self.nodes, ports, strict=True)}
        routes = {link: (self._listening[link.target], self._advertised[link.target]) for link in self.links()}
        log = self._folder / "toxiproxy.log"
        try:
            self._proxies = await ProcessProxies.start(
                server, api_port=api_port, families=[routes], log=log, registration=self._registration
            )
        except BaseException:
            self._registration.close()
            raise
        self._links = Links(lambda link: (self._listening[link.target],), self._proxies)

    @override
    async def stop(self) -> None:
        """Leave the cluster as it was found: undo only the run's own changes."""
        if self._registration is None:
            return
        with trio.CancelScope(shield=True):
            try:
                if self._proxies is not None:
                    await self._leave_as_found()
            finally:
                if self._proxies is not None:
                    await self._proxies.stop()
                self._registration.close()
                self._registration = None

    async def _leave_as_found(self) -> None:
        """Restore the brokers and delete the run's topics. The topics are deleted even if a broker does not return."""
        try:
            await self.heal()
        finally:
            try:
                await self._delete_topics()
            except HarnessError as trouble:
                self._say(f"topics of the run may be left: {', '.join(sorted(self._topics))} ({trouble})")

    async def _delete_topics(self) -> None:
        """Delete the topics that the run made, and report those that could not be deleted."""
        found = await discover(self._bootstrap)
        left = dict.fromkeys(sorted(self._topics & found.topics), "no answer")
        async with trio.open_nursery() as nursery:
            # Not through the proxies, one of which may have ended.
            client = Client(RealEnv("cleaner"), addresses(self._bootstrap))
            await nursery.start(client.run)
            with trio.move_on_after(HEAL_S):
                while left:
                    try:
                        told = await admin.delete_topics(client, list(left))
                    except (RequestFailed, UnsupportedApi) as failure:
                        left = dict.fromkeys(left, str(failure))
                    else:
                        left = {name: why for name, why in told.items() if why not in DELETED}
                    await trio.sleep(POLL_S if left else 0)
            client.close()
        if left:
            self._say(f"these topics of the run are left: {', '.join(left)} ({next(iter(left.values()))})")

    @override
    def env(self, name: str) -> Env:
        return ProxiedEnv(name, {self._advertised[node]: self._listening[node] for node in self._advertised})

    @override
    def bootstrap(self, zone: str) -> str:
        """Return the advertised addresses. Squall's clients connect to the proxies instead."""
        if zone not in self.zones:
            raise PreconditionError(
                f"there is no zone {zone!r}: what brokers of others say to each other is out of reach"
            )
        return ",".join(shown(self._advertised[node]) for node in self.nodes)

    @override
    def links(self) -> tuple[Link, ...]:
        """Return the links of clients. Links between brokers are out of reach."""
        return tuple(Link(zone, node) for zone in self.zones for node in self.nodes)

    @override
    def state(self, node: int) -> NodeState:
        """Return the last observed state. The state of a broker whose container is unknown cannot be observed."""
        return self._theirs[node].state if node in self._theirs else NodeState.RUNNING

    @override
    def exits(self) -> tuple[NodeExit, ...]:
        """Return the exits that the run did not order, of brokers whose containers are known. Squall notices an exit
        only when it next acts on that container, or when `heal` checks it.
        """
        return tuple(gone for each in self._theirs.values() for gone in each.exits)

    @override
    def troubles(self) -> tuple[str, ...]:
        return self._links.troubles() if self._links is not None else ()

    @override
    async def kill(self, node: int) -> Evidence:
        return await self._container(node).kill()

    @override
    async def stop_node(self, node: int, *, grace_s: float = 30.0) -> Evidence:
        return await self._container(node).stop(grace_s)

    @override
    async def start_node(self, node: int) -> Evidence:
        return await self._container(node).start()

    @override
    async def pause(self, node: int) -> Evidence:
        return await self._container(node).pause()

    @override
    async def resume(self, node: int) -> Evidence:
        return await self._container(node).resume()

    @override
    async def activity(self, node: int) -> Evidence:
        return await self._container(node).activity()

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

    @override
    async def ending(
        self, link: Link, *, timeout_s: float = 1.0, spoil: bool = False, opened: Callable[[], None] = lambda: None
    ) -> ProbeResult:
        return await self._linked().ending(link, timeout_s, spoil, opened)

    @override
    async def heal(self) -> Evidence:
        await self._linked().heal_all()
        for each in self._theirs.values():
            await each.poll()
        resumed = [node for node in self.nodes if self.state(node) is NodeState.PAUSED]
        for node in resumed:
            await self.resume(node)
        down = [node for node in self.nodes if self.state(node) is NodeState.DOWN]
        async with trio.open_nursery() as nursery:
            for node in down:
                nursery.start_soon(self.start_node, node)
        failed = await silent_links(self, HEAL_S)
        told: Evidence = {"resumed": resumed, "started": down, "links": len(self.links())}
        return {**told, "failed": [str(link) for link in failed]}

    @override
    def files(self) -> Mapping[str, bytes]:
        """Return nothing: the brokers' files are out of reach."""
        return {}

    @override
    def trace_path(self, node: int) -> Path:
        """Return the path nodes/N/trace.jsonl of the run directory. No file is there: the broker writes no trace."""
        return self._folder / "nodes" / str(node) / "trace.jsonl"

    @override
    def log_path(self, node: int) -> Path:
        """Return the path nodes/N/broker.log of the run directory. No file is there: Squall cannot reach the broker's
        log.
        """
        return self._folder / "nodes" / str(node) / "broker.log"

    @override
    def data_path(self, node: int) -> Path:
        """Return the path nodes/N/data of the run directory. Nothing is there: Squall cannot reach the broker's log
        directory.
        """
        return self._folder / "nodes" / str(node) / "data"

    @override
    async def set_clock(self, node: int, offset_ms: float, *, rate: float = 1.0) -> Evidence:
        _refuse("clock that can be bent", f"node {node}")

    @override
    async def slow_cpu(self, name: str, node: int, share: float) -> Evidence:
        _refuse("CPU that can be slowed", f"node {node}")

    @override
    async def heal_cpu(self, name: str, node: int) -> Evidence:
        _refuse("CPU that can be slowed", f"node {node}")

    @override
    def clock_reports(self, node: int) -> Sequence[ClockReport]:
        """Return nothing: the cluster writes no trace."""
        return ()

    @override
    async def power_loss(self, nodes: Sequence[int]) -> Evidence:
        _refuse("power that can be cut", f"nodes {list(nodes)}")

    @override
    async def crash_at(self, node: int, op: CrashOp, nth: int, *, within_s: float) -> Evidence:
        _refuse("crash points", f"node {node}")

    @override
    async def fault_disk(self, name: str, node: int, fault: DiskFault) -> Evidence:
        _refuse("disk that can be hurt", f"node {node}")

    @override
    async def heal_disk(self, name: str, node: int) -> Evidence:
        _refuse("disk that can be hurt", f"node {node}")

    async def software(self, node: int) -> Evidence:
        """Raise: Squall does not know which software somebody else's broker runs."""
        _refuse("version that is ours to know", f"node {node}")

    async def upgrade_node(self, node: int) -> Evidence:
        """Raise: Squall does not upgrade somebody else's broker."""
        _refuse("version that is ours to change", f"node {node}")

    @override
    async def rot(
        self, node: int, *, path_glob: str = "*.log", bits: int = 1, where: Literal["checked", "epoch"] = "checked"
    ) -> Evidence:
        _refuse("disk that can be hurt", f"node {node}")

    @override
    async def damage(self, node: int, how: Literal["tail", "file"], *, size: int = 1000) -> Evidence:
        _refuse("disk that can be hurt", f"node {node}")

    def _container(self, node: int) -> AttachedContainer:
        if node not in self._theirs:
            raise PreconditionError(f"broker {node}: without a compose file its container is not known")
        return self._theirs[node]

    def _linked(self) -> Links:
        assert self._links is not None, "the runtime was not started"
        return self._links


def _refuse(what: str, where: str) -> NoReturn:
    raise PreconditionError(f"somebody else's cluster has no {what} ({where})")
