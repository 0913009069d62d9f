"""The process runtime: one OS process per broker on loopback, every link through one real Toxiproxy."""

from __future__ import annotations

import os
import platform
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import trio

from chaos.errors import HarnessError, Refused
from chaos.runtimes.contract import Act, Evidence, Link, NodeState
from chaos.runtimes.layout import (
    INTERNAL,
    Layout,
    check_settings,
    check_zones,
    choose_controllers,
)
from chaos.runtimes.process.cpu_share import Slowing
from chaos.runtimes.process.node import BROKER, Node
from chaos.runtimes.real.brokers import READY_S, OfBrokers
from chaos.runtimes.real.framed_links import Routes
from chaos.runtimes.real.processes.ports import LOOPBACK, free_ports, is_free
from chaos.runtimes.real.processes.proxies import Proxies
from chaos.runtimes.real.processes.registry import Registration, claimed_ports, locked
from chaos.runtimes.real.readiness import until_all_see_all
from chaos.toolchain.cache import Say
from chaos.toolchain.toxiproxy import toxiproxy_server


class ProcessRuntime(Slowing, OfBrokers):
    """`chaos.runtimes.contract.Runtime` over processes of this machine. Linux only.

    Files are below `folder`: nodes/N/{broker.properties, broker.log, trace.jsonl, data/}, toxiproxy.log. Started again
    on the same folder, the cluster has what it had.

    nodes: how many, with ids from 1, or which ids. settings: Kafka's names, for every broker. controllers: the voters'
    ids, else the first three (one, of fewer). proxied: False lets brokers and clients reach each other straight,
    without Toxiproxy: for development, no link can be hurt then. client_port: of the first zone's first listener, the
    others follow; else all are chosen. framed: links with a frame-aware relay, for protocol faults (`framed_links` of a
    plan). program: what is started with --config FILE for a broker. hurt: it is started
    with --faults FOLDER too, so that its disk and power can be hurt; seed: of what is drawn then. second: a folder with
    the package `broker` that brokers can be upgraded to.
    """

    name = "process"

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
        program: tuple[str, ...] = BROKER,
        hurt: bool = False,
        seed: int = 0,
        framed: Sequence[Link] = (),
        second: Path | None = None,
        say: Say = lambda line: None,
    ) -> None:
        check_zones(zones)
        check_settings(settings or {})
        if platform.system() != "Linux":
            raise Refused("the process runtime needs Linux: it reads /proc and ties processes to the harness by prctl")
        self.nodes = tuple(range(1, nodes + 1)) if isinstance(nodes, int) else tuple(sorted(nodes))
        self.zones = zones
        acts = {Act.KILL, Act.STOP, Act.PAUSE, Act.CLOCK, Act.ROT, Act.SLOW} | ({Act.LINK} if proxied else set())
        self.acts = frozenset(acts | ({Act.POWER_LOSS, Act.CRASH, Act.DISK} if hurt else set()))
        self.seed = seed
        self._framed = tuple(framed) if proxied else ()
        self.acts |= ({Act.FRAMES} if self._framed else set()) | ({Act.UPGRADE} if second is not None else set())
        self._second = second
        self._folder = folder.absolute()
        self._settings = dict(settings or {})
        self._controllers = tuple(controllers) if controllers is not None else choose_controllers(self.nodes)
        self._proxied = proxied
        self._client_port = client_port
        self._program = program
        self._is_hurt = hurt
        self._say = say
        self._registration: Registration | None = None
        self._layout: Layout | None = None
        self._proxies: Proxies | None = None
        self._nodes: dict[int, Node] = {}

    async def start(self) -> None:
        """As `Runtime.start`. Where it fails it has ended what it had begun. Refused for what cannot be."""
        assert self._registration is None, "a runtime is started once"
        server = await trio.to_thread.run_sync(toxiproxy_server, self._say) if self._proxied else None
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock_folder()
        self._registration = Registration(f"{self._folder.name}-{os.getpid()}-{os.urandom(4).hex()}", self._folder)
        try:
            self._layout = self._place(self._registration)
            self._check_settings(self._layout)
            if server is not None:
                await self._start_proxies(server, self._layout, self._registration)
            await self._start_nodes(self._layout, self._registration)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """As `Runtime.stop`. Shielded: an interrupted run ends its processes as well."""
        with trio.CancelScope(shield=True):
            try:
                await self._stop_nodes()
            finally:
                await self._end_everything()

    async def start_node(self, node: int) -> Evidence:
        """As `Runtime.start_node`."""
        found = self._node(node)
        return {**found.launch(), "ready_ns": await found.wait_ready(READY_S), **found.came_up}

    def _place(self, registration: Registration) -> Layout:
        """Choose every port and note them as ours before another run chooses its own."""
        listeners = [(name, node) for name in (INTERNAL, *self.zones) for node in self.nodes]
        proxied = self.links() if self._proxied else ()
        with locked():
            taken = claimed_ports()
            ports = free_ports(len(listeners) + len(proxied) + 1, taken, random.Random())
            registration.claim_ports(ports)
        here = [(LOOPBACK, port) for port in ports]
        direct = dict(zip(listeners, here, strict=False))
        if self._client_port is not None:
            for at, node in enumerate(self.nodes):
                direct[self.zones[0], node] = (LOOPBACK, self._given_port(self._client_port + at))
        self._api_port = ports[-1]
        proxies = dict(zip(proxied, here[len(listeners) :], strict=False))
        return Layout(self.nodes, self._controllers, self.zones, direct, proxies)

    def _given_port(self, port: int) -> int:
        if not is_free(port):
            raise Refused(f"port {port} is taken by another program: give another one")
        return port

    def _check_settings(self, layout: Layout) -> None:
        if self._program == BROKER:
            self._check_broker_settings(layout)

    async def _start_proxies(self, server: Path, layout: Layout, registration: Registration) -> None:
        log = self._folder / "toxiproxy.log"
        self._proxies = await Proxies.start(
            server,
            api_port=self._api_port,
            families=self._routes(layout),
            log=log,
            registration=registration,
            framed=self._framed,
        )

    def _routes(self, layout: Layout) -> list[Routes]:
        """What is proxied, in families of one proxy a link."""
        return [{link: (layout.address(link), layout.target(link)) for link in layout.links()}]

    def _new_node(self, node: int, layout: Layout, registration: Registration) -> Node:
        return Node(
            node,
            self._folder / "nodes" / str(node),
            {**self._settings, **layout.settings(node), "squall.cluster.id": self._cluster_id()},
            registration=registration,
            probe_port=layout.direct[INTERNAL, node][1],
            program=self._program,
            hurt=self._is_hurt,
            second=self._second,
        )

    async def _prepare(self) -> None:
        """What must be done once, before the first start."""

    async def _start_nodes(self, layout: Layout, registration: Registration) -> None:
        for node in self.nodes:
            self._nodes[node] = self._new_node(node, layout, registration)
        await self._prepare()
        await self._bring_up(self.nodes)
        waited = {Link(zone, node): layout.address(Link(zone, node)) for zone in self.zones for node in self.nodes}
        if not await until_all_see_all(waited, self.nodes, self.exits, READY_S):
            raise HarnessError(f"the brokers did not all see each other within {READY_S:g} s: see {self._folder}/nodes")

    async def _bring_up(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            self._node(node).launch()
        for node in nodes:
            await self._node(node).wait_ready(READY_S)

    async def _end_everything(self) -> None:
        for node in self._nodes.values():
            if self.state(node.id) is not NodeState.DOWN:
                await node.kill()
        if self._proxies is not None:
            await self._proxies.stop()
        if self._registration is not None:
            self._registration.close()
            self._lock.close()

    def _node(self, node: int) -> Node:
        if node not in self._nodes:
            raise HarnessError(f"there is no node {node}")
        return self._nodes[node]
