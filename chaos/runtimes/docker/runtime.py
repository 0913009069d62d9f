"""The docker runtime: one container per broker, every link through one Toxiproxy in a container of its own."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import trio

from chaos.errors import HarnessError, Refused
from chaos.runtimes.contract import Act, ClockWord, Evidence, Link, LinkFault, Loss, NodeState
from chaos.runtimes.docker import labels, relay
from chaos.runtimes.docker import node as broker
from chaos.runtimes.docker import proxies as toxiproxy
from chaos.runtimes.docker.addresses import free_ranges, node_host, of_networks, place, proxy_host, relay_host, routed
from chaos.runtimes.docker.container import Container, in_thread
from chaos.runtimes.docker.cpu_quota import Slowing
from chaos.runtimes.docker.faketime import TELLING_MS, FakeTime, check_image
from chaos.runtimes.docker.losses import CAPABILITY
from chaos.runtimes.docker.node import BROKER, INSIDE, Node
from chaos.runtimes.docker.proxies import Proxies
from chaos.runtimes.docker.relay import Relay
from chaos.runtimes.docker.volumes import Volumes
from chaos.runtimes.docker.watch import Watch
from chaos.runtimes.layout import INTERNAL, Layout, check_settings, check_zones, choose_controllers
from chaos.runtimes.real.brokers import READY_S, OfBrokers
from chaos.runtimes.real.framed_links import Routes
from chaos.runtimes.real.readiness import until_all_see_all
from chaos.toolchain.cache import Say
from chaos.toolchain.engine import ContainerSpec, Engine, EngineError, Mount
from chaos.toolchain.images import Images

BROKER_MEMORY, PROXY_MEMORY = 768 << 20, 256 << 20
BROKER_CPUS = 1.0
NOBODY = 10_001
"""The user id of brokers where the harness is root: no broker is."""


class DockerRuntime(Slowing, OfBrokers):
    """`chaos.runtimes.contract.Runtime` over containers of this machine's engine.

    Files are below `folder`, as in the process runtime: nodes/N/{broker.properties, broker.log, trace.jsonl, data/},
    toxiproxy.log. Everything that the engine is told to make carries the run's labels (`labels`).

    nodes: how many, with ids from 1, or which ids. settings: Kafka's names, for every broker. controllers: the voters'
    ids, else the first three (one, of fewer). fake_time: brokers run behind libfaketime, which can fake their time.
    cpus, memory_bytes: limits of each broker. program: what is started with --config FILE for a broker. mounts: more of
    this machine's files in the brokers' containers. lossy: packets can be lost, for which Toxiproxy's container, and no
    other, gets NET_ADMIN. framed: links with a frame-aware relay, for protocol faults (`framed_links` of a plan). hurt:
    a broker is started with --faults FOLDER too, so that its disk and power can be hurt; seed: of what is drawn then.
    second: the id of the image that brokers can be upgraded to.
    volume_bytes: what each broker's data may take, on a volume of its own (`volumes`); 0: a folder of this machine.
    """

    name = "docker"

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        images: Images,
        *,
        nodes: int | Sequence[int] = 3,
        zones: tuple[str, ...] = ("CLIENT",),
        settings: Mapping[str, str] | None = None,
        controllers: Sequence[int] | None = None,
        cpus: float = BROKER_CPUS,
        memory_bytes: int = BROKER_MEMORY,
        program: tuple[str, ...] = BROKER,
        mounts: Sequence[Mount] = (),
        lossy: bool = False,
        framed: Sequence[Link] = (),
        hurt: bool = False,
        seed: int = 0,
        fake_time: bool = False,
        second: str | None = None,
        volume_bytes: int = 0,
        say: Say = lambda line: None,
    ) -> None:
        check_zones(zones)
        check_settings(settings or {})
        self.nodes = tuple(range(1, nodes + 1)) if isinstance(nodes, int) else tuple(sorted(nodes))
        self.zones = zones
        acts = {Act.KILL, Act.STOP, Act.PAUSE, Act.CLOCK, Act.ROT, Act.SLOW, Act.LINK}
        acts |= {Act.POWER_LOSS, Act.CRASH, Act.DISK} if hurt else set()
        self.acts = frozenset(acts | ({Act.LOSS} if lossy else set()) | ({Act.FRAMES} if framed else set()))
        self.acts |= {Act.UPGRADE} if second is not None else set()
        self._framed, self._second = tuple(framed), second
        self.seed = seed
        self.run = f"{folder.name}-{os.getpid()}-{os.urandom(4).hex()}"
        self._folder = folder.absolute()
        self._engine, self._images = engine, images
        self._settings = dict(settings or {})
        self._controllers = tuple(controllers) if controllers is not None else choose_controllers(self.nodes)
        self._cpus, self._memory_bytes = cpus, memory_bytes
        self._program, self._mounts = program, tuple(mounts)
        self._say = say
        self._labels = labels.labels_of(self.run, str(self._folder))
        self._volumes = Volumes(engine, self.run, self.nodes, volume_bytes)
        self._is_lossy = lossy
        self._is_hurt = hurt
        self._is_faked = fake_time
        self._faked: dict[int, FakeTime] = {}
        self._owner = NOBODY if os.getuid() == 0 else None
        self._user = f"{self._owner or os.getuid()}:{self._owner or os.getgid()}"
        self._network = ""
        self._layout: Layout | None = None
        self._watch: Watch | None = None
        self._proxies: Proxies | None = None
        self._nodes: dict[int, Node] = {}
        self._is_up = self._stopped = False

    async def start(self) -> None:
        """As `Runtime.start`. Where it fails it has ended what it had begun. Refused for what cannot be."""
        assert self._layout is None, "a runtime is started once"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock_folder()
        try:
            if self._is_faked:
                await in_thread(check_image, self._engine, self._images.broker)
            self._watch = await in_thread(Watch, self._engine, f"{labels.RUN}={self.run}")
            await self._volumes.make(self._labels)
            network = await self._make_network()
            self._layout = place(network, self.nodes, self._controllers, self.zones)
            if self._program == BROKER:
                self._check_broker_settings(self._layout)
            await self._start_containers(network, self._layout, self._watch)
            self._is_up = True
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """As `Runtime.stop`. Shielded: an interrupted run ends its containers as well."""
        if self._stopped:
            return
        self._stopped = True
        with trio.CancelScope(shield=True):
            try:
                await self._stop_nodes()
                if self._is_up:
                    await self._bring_home()
            finally:
                await self._end_everything()

    async def start_node(self, node: int) -> Evidence:
        """As `Runtime.start_node`."""
        found = self._node(node)
        return {**await found.launch(), "ready_ns": await found.wait_ready(READY_S)}

    async def fault_link(self, name: str, link: Link, fault: LinkFault) -> Evidence:
        """As `Runtime.fault_link`."""
        if isinstance(fault, Loss) and not self._is_lossy:
            raise Refused("no packets can be lost: Toxiproxy's container was started without NET_ADMIN")
        return await super().fault_link(name, link, fault)

    async def fake_time(self, node: int, offset_ms: float) -> Evidence:
        """As `FakingTime.fake_time`. The broker's own clock file bends nothing, but has it tell its time."""
        if node not in self._faked:
            raise Refused(f"broker {node} was started without libfaketime")
        asked_ns = time.monotonic_ns()
        self._faked[node].order(offset_ms)
        self._node(node).set_clock(TELLING_MS if offset_ms else 0, 1.0)
        return {"offset_ms": offset_ms, "rate": 1.0, "by": "libfaketime", "asked_ns": asked_ns}

    def clock_words(self, node: int) -> Sequence[ClockWord]:
        """As `Runtime.clock_words`."""
        words = super().clock_words(node)
        return self._faked[node].meant(words) if node in self._faked else words

    async def heal(self) -> Evidence:
        """As `Runtime.heal`."""
        for faked in self._faked.values():
            faked.order(0)
        return await super().heal()

    async def _make_network(self) -> IPv4Network:
        """A network of a range that nobody has. Two runs may look at the same time: the engine refuses one of them."""
        networks = await in_thread(self._engine.networks)
        refused: EngineError | None = None
        for candidate in free_ranges([*of_networks(networks), *routed()], random.Random()):
            try:
                self._network = await in_thread(
                    self._engine.make_network, f"squall-{self.run}", str(candidate), self._labels
                )
                return candidate
            except EngineError as error:
                if "overlaps" not in str(error):
                    raise
                refused = error
        why = str(refused or "every private range is routed somewhere or is another network's")
        raise Refused(f"there is no free network range for the cluster: {why}; `docker network prune` may free some")

    async def _start_containers(self, network: IPv4Network, layout: Layout, watch: Watch) -> None:
        cluster_id = self._cluster_id()
        for each in self.nodes:
            settings = {**self._settings, **layout.settings(each), "squall.cluster.id": cluster_id}
            folder, address = self._folder / "nodes" / str(each), layout.direct[INTERNAL, each]
            options: dict[str, Any] = {"cpus": self._cpus, "owner": self._owner, "hurt": self._is_hurt}
            options["second"] = self._second
            self._nodes[each] = Node(each, folder, settings, address, watch, **options)
            folder.mkdir(parents=True, exist_ok=True)
            if self._is_faked:
                self._faked[each] = FakeTime(folder)
                self._faked[each].order(0)  # whatever an earlier run on this folder ordered
        log = self._file("toxiproxy.log")
        routes = {link: (layout.address(link), layout.target(link)) for link in layout.links()}
        host = proxy_host(network)
        behind = self._relay(relay_host(network), routes, watch) if self._framed else None
        self._proxies = Proxies(Container(self._engine, watch, self._proxy_spec(host, log)), host, routes, behind)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._proxies.start, log)
            for found in self._nodes.values():
                spec = self._broker_spec(found, node_host(network, found.id))
                nursery.start_soon(found.create, Container(self._engine, watch, spec))
        await self._bring_up(self.nodes)
        waited = {Link(zone, each): layout.address(Link(zone, each)) for zone in self.zones for each in self.nodes}
        if not await until_all_see_all(waited, self.nodes, self.exits, READY_S):
            raise HarnessError(f"the brokers did not all see each other within {READY_S:g} s: see {self._folder}/nodes")

    def _broker_spec(self, found: Node, host: str) -> ContainerSpec:
        return ContainerSpec(
            name=f"squall-{self.run}-broker-{found.id}",
            image=self._images.broker,
            command=broker.command(self._program, hurt=self._is_hurt, fake_time=self._is_faked),
            labels={**self._labels, labels.NODE: str(found.id)},
            network=self._network,
            address=host,
            user=self._user,
            mounts=(
                Mount(str(found.folder), INSIDE),
                *self._volumes.of_broker(found.id),
                *self._mounts,
            ),
            memory_bytes=self._memory_bytes,
            cpus=self._cpus,
        )

    def _file(self, name: str) -> Path:
        """A file that a container may write into, whoever it is."""
        file = self._folder / name
        file.touch()
        file.chmod(0o666)
        return file

    def _relay(self, host: str, routes: Routes, watch: Watch) -> Relay:
        log, ways = self._file("frame-relay.log"), self._file("frame-relay.json")
        spec = ContainerSpec(
            name=f"squall-{self.run}-frame-relay",
            image=self._images.relay,
            command=relay.command(),
            labels=self._labels,
            network=self._network,
            address=host,
            user=self._user,
            mounts=(Mount(str(log), relay.LOG_INSIDE), Mount(str(ways), relay.ROUTES_INSIDE, read_only=True)),
            memory_bytes=PROXY_MEMORY,
            cpus=float(os.cpu_count() or 1),
        )
        made = Relay(Container(self._engine, watch, spec), host, routes, self._framed)
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
            # Whoever is not root would get no capability.
            user="0:0" if self._is_lossy else self._user,
            mounts=(Mount(str(log), toxiproxy.LOG_INSIDE), *self._volumes.of_keeper()),
            memory_bytes=PROXY_MEMORY,
            capabilities=(CAPABILITY,) if self._is_lossy else (),
            cpus=float(os.cpu_count() or 1),
        )

    async def _bring_up(self, nodes: Sequence[int]) -> None:
        troubles: list[HarnessError] = []

        async def up(each: Node) -> None:
            try:
                await each.launch()
                await each.wait_ready(READY_S)
            except HarnessError as trouble:
                troubles.append(trouble)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for each in nodes:
                nursery.start_soon(up, self._node(each))
        if troubles:
            raise troubles[0]

    async def _bring_home(self) -> None:
        folders = {each.id: each.folder for each in self._nodes.values()}
        for trouble in await self._volumes.bring(f"squall-{self.run}-toxiproxy", folders):
            self._say(f"a broker's data is gone with its volume: {trouble}")

    async def _end_everything(self) -> None:
        for each in self._nodes.values():
            each.state = NodeState.DOWN
        if self._proxies is not None:
            self._proxies.close()
        for trouble in await in_thread(labels.remove_all, self._engine, self.run):
            self._say(f"something of run {self.run} may be left, `./squall clean` removes it: {trouble}")
        if self._watch is not None:
            await in_thread(self._watch.close)
        self._lock.close()

    def _node(self, node: int) -> Node:
        if node not in self._nodes:
            raise HarnessError(f"there is no node {node}")
        return self._nodes[node]
