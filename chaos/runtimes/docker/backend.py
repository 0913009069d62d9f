"""Runs a cluster in containers of this machine's engine: one for each broker, and one for Toxiproxy, through which
every link leads.

Everything that the engine makes for a run carries the run's labels (`labels`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

import trio

from squall.broker.overriding import override
from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.contract import Evidence, Link, NodeState
from squall.chaos.runtimes.docker import labels, relay
from squall.chaos.runtimes.docker import node as broker
from squall.chaos.runtimes.docker import proxies as toxiproxy
from squall.chaos.runtimes.docker.addresses import (
    free_ranges,
    node_host,
    of_networks,
    place,
    proxy_host,
    relay_host,
    routed,
)
from squall.chaos.runtimes.docker.container import Container, in_thread
from squall.chaos.runtimes.docker.faketime import FakedClocks, check_image
from squall.chaos.runtimes.docker.losses import CAPABILITY
from squall.chaos.runtimes.docker.node import BROKER, INSIDE, ContainerNode
from squall.chaos.runtimes.docker.proxies import ContainerProxies
from squall.chaos.runtimes.docker.relay import RelayContainer
from squall.chaos.runtimes.docker.volumes import Volumes
from squall.chaos.runtimes.docker.watch import ContainerWatch
from squall.chaos.runtimes.layout import INTERNAL, AddressLayout
from squall.chaos.runtimes.real.blueprint import Blueprint
from squall.chaos.runtimes.real.brokers import Nodes
from squall.chaos.runtimes.real.framed_links import Routes
from squall.chaos.runtimes.real.links import LinkProxies
from squall.chaos.runtimes.real.runtime import ClusterBackend
from squall.chaos.toolchain.cache import Say
from squall.chaos.toolchain.engine import ContainerMount, ContainerSpec, DockerEngine, EngineError
from squall.chaos.toolchain.images import ImageNames
from squall.chaos.typed import typed

BROKER_MEMORY, PROXY_MEMORY = 768 << 20, 256 << 20
BROKER_CPUS = 1.0
NOBODY = 10_001
"""Is the user id of brokers if the harness is root: no broker runs as root."""


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """Holds the options of a cluster's containers.

    cpus, memory_bytes: limits of each broker. program: the command that starts a broker when --config FILE is added.
    mounts: further files of this machine in the brokers' containers. lossy: packets can be lost; for this, Toxiproxy's
    container alone gets NET_ADMIN. framed: links that can have protocol faults, and so lead through the relay that
    parses Kafka requests. faulted: the brokers' command also gets --faults FOLDER, which makes disk faults and power
    losses possible. fake_time: brokers run behind libfaketime. second: the id of the image that brokers can be upgraded
    to. volume_bytes: the size of each broker's own data volume (`volumes`); 0 means that data is in a folder of this
    machine.
    """

    cpus: float = BROKER_CPUS
    memory_bytes: int = BROKER_MEMORY
    program: tuple[str, ...] = BROKER
    mounts: Sequence[ContainerMount] = ()
    lossy: bool = False
    framed: Sequence[Link] = ()
    faulted: bool = False
    fake_time: bool = False
    second: str | None = None
    volume_bytes: int = 0


class ContainerBackend(ClusterBackend):
    """Makes, starts and ends the containers of a cluster."""

    def __init__(
        self, plan: Blueprint, engine: DockerEngine, images: ImageNames, options: ContainerOptions, *, say: Say
    ) -> None:
        self.brokers: Nodes[ContainerNode] = Nodes()
        self.faked = FakedClocks(self.brokers) if options.fake_time else None
        self.run = f"{plan.folder.name}-{os.getpid()}-{os.urandom(4).hex()}"
        self._plan, self._engine, self._images, self._with, self._say = plan, engine, images, options, say
        self._labels = labels.labels_of(self.run, str(plan.folder))
        self._volumes = Volumes(engine, self.run, plan.nodes, options.volume_bytes)
        self._owner = NOBODY if os.getuid() == 0 else None
        self._user = f"{self._owner or os.getuid()}:{self._owner or os.getgid()}"
        self._network = ""
        self._watch: ContainerWatch | None = None
        self._proxies: ContainerProxies | None = None
        self._has_data = False

    @override
    async def make(self) -> tuple[AddressLayout, LinkProxies | None]:
        plan = self._plan
        if self.faked is not None:
            await in_thread(check_image, self._engine, self._images.broker)
        for each in await in_thread(labels.sweep, self._engine):
            self._say(f"ended {each}, which a killed run had left")
        # Before the first container, so that no end of one is missed.
        watch = self._watch = await in_thread(ContainerWatch, self._engine, f"{labels.RUN}={self.run}")
        await self._volumes.make(self._labels)
        network = await self._make_network()
        layout = place(network, plan.nodes, plan.controllers, plan.zones)
        if self._with.program == BROKER:
            plan.check_brokers_settings(layout)
        self._make_nodes(layout, watch)
        await self._make_containers(network, layout, watch)
        return layout, self._proxies

    @override
    async def start_node(self, node: int, ready_s: float) -> Evidence:
        found = self.brokers[node]
        return {**await found.launch(), "ready_ns": await found.wait_ready(ready_s)}

    @override
    async def bring_up(self, nodes: Sequence[int], ready_s: float) -> None:
        troubles: list[HarnessError] = []

        async def up(each: ContainerNode) -> None:
            try:
                await each.launch()
                await each.wait_ready(ready_s)
            except HarnessError as trouble:
                # Raised here, it would leave the nursery in a group, and no caller expects one.
                troubles.append(trouble)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for each in nodes:
                nursery.start_soon(up, self.brokers[each])
        if troubles:
            raise troubles[0]
        self._has_data = True

    @override
    async def end(self) -> None:
        """End everything that was made, after copying the volumes' content into the nodes' folders."""
        try:
            if self._has_data:
                await self._bring_home()
        finally:
            await self._end_everything()

    async def _make_network(self) -> IPv4Network:
        """Make a network with a free address range. If another run has just taken the range, the engine refuses it, and
        the next free range is tried.
        """
        networks = await in_thread(self._engine.networks)
        refused: EngineError | None = None
        for candidate in free_ranges([*of_networks(networks), *routed()], random.Random()):
            try:
                self._network = await in_thread(
                    self._engine.make_network, f"squall-{self.run}", str(candidate), self._labels
                )
                return candidate
            except EngineError as error:
                # The engine has no code for a range that another run has just taken, only this word.
                if "overlaps" not in str(error):
                    raise
                refused = error
        why = str(refused or "every private range is routed somewhere or is another network's")
        raise PreconditionError(
            f"there is no free network range for the cluster: {why}; `docker network prune` may free some"
        )

    def _make_nodes(self, layout: AddressLayout, watch: ContainerWatch) -> None:
        plan, cluster_id = self._plan, self._plan.cluster_id()
        for each in plan.nodes:
            settings = {**plan.settings, **layout.settings(each), "squall.cluster.id": cluster_id}
            files = plan.files(each)
            files.path.mkdir(parents=True, exist_ok=True)
            self.brokers[each] = ContainerNode(
                each,
                files,
                settings,
                layout.direct[INTERNAL, each],
                watch,
                cpus=self._with.cpus,
                owner=self._owner,
                faulted=self._with.faulted,
                second=self._with.second,
            )
            if self.faked is not None:
                self.faked.begin(files, each)

    async def _make_containers(self, network: IPv4Network, layout: AddressLayout, watch: ContainerWatch) -> None:
        log = self._file("toxiproxy.log")
        (routes,) = layout.families()
        host = proxy_host(network)
        behind = self._relay(relay_host(network), routes, watch) if self._with.framed else None
        container = Container(self._engine, watch, self._proxy_spec(host, log))
        self._proxies = ContainerProxies(container, host, routes, behind, lossy=self._with.lossy)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._proxies.start, log)
            for found in self.brokers.values():
                spec = self._broker_spec(found, node_host(network, found.id))
                nursery.start_soon(found.create, Container(self._engine, watch, spec))

    def _broker_spec(self, found: ContainerNode, host: str) -> ContainerSpec:
        return ContainerSpec(
            name=f"squall-{self.run}-broker-{found.id}",
            image=self._images.broker,
            command=broker.command(self._with.program, faulted=self._with.faulted, fake_time=self._with.fake_time),
            labels={**self._labels, labels.NODE: str(found.id)},
            network=self._network,
            address=host,
            user=self._user,
            mounts=(
                ContainerMount(str(found.files.path), INSIDE),
                *self._volumes.broker_mounts(found.id),
                *self._with.mounts,
            ),
            memory_bytes=self._with.memory_bytes,
            cpus=self._with.cpus,
        )

    def _file(self, name: str) -> Path:
        """Make a file that a container may write, whatever its user is."""
        file = self._plan.folder / name
        file.touch()
        file.chmod(0o666)
        return file

    def _relay(self, host: str, routes: Routes, watch: ContainerWatch) -> RelayContainer:
        log, ways = self._file("frame-relay.log"), self._file("frame-relay.json")
        spec = ContainerSpec(
            name=f"squall-{self.run}-frame-relay",
            image=self._images.relay,
            command=relay.command(),
            labels=self._labels,
            network=self._network,
            address=host,
            user=self._user,
            mounts=(
                ContainerMount(str(log), relay.LOG_INSIDE),
                ContainerMount(str(ways), relay.ROUTES_INSIDE, read_only=True),
            ),
            memory_bytes=PROXY_MEMORY,
            cpus=float(os.cpu_count() or 1),
        )
        made = RelayContainer(Container(self._engine, watch, spec), host, routes, self._with.framed)
        ways.write_text(made.text)
        return made

    def _proxy_spec(self, host: str, log: Path) -> ContainerSpec:
        return ContainerSpec(
            name=f"squall-{self.run}-toxiproxy",
            image=self._images.toxiproxy,
            command=toxiproxy.command(host),
            labels=self._labels,
            network=self._network,
            address=host,
            # A user other than root would get no capability.
            user="0:0" if self._with.lossy else self._user,
            mounts=(ContainerMount(str(log), toxiproxy.LOG_INSIDE), *self._volumes.proxy_mounts()),
            memory_bytes=PROXY_MEMORY,
            capabilities=(CAPABILITY,) if self._with.lossy else (),
            cpus=float(os.cpu_count() or 1),
        )

    async def _bring_home(self) -> None:
        folders = {each.id: each.files.path for each in self.brokers.values()}
        for trouble in await self._volumes.bring(f"squall-{self.run}-toxiproxy", folders):
            self._say(f"a broker's data is gone with its volume: {trouble}")

    async def _end_everything(self) -> None:
        for each in self.brokers.values():
            each.state = NodeState.DOWN
        if self._proxies is not None:
            self._proxies.close()
        for trouble in await in_thread(labels.remove_all, self._engine, self.run):
            self._say(f"something of run {self.run} may be left, `{typed('clean')}` removes it: {trouble}")
        if self._watch is not None:
            await in_thread(self._watch.close)
