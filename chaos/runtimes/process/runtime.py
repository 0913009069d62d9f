"""The process runtime: one OS process per broker on loopback, every link through one real Toxiproxy."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import random
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import trio

from broker.config import BrokerConfig, ConfigError
from broker.env import Env
from broker.protocol.errors import MalformedFrame
from broker.real_env import RealEnv
from chaos import asking
from chaos.asking import visible_brokers
from chaos.clock_words import ClockWitness
from chaos.errors import HarnessError, Refused
from chaos.hurting import Hurting
from chaos.layout import (
    INTERNAL,
    Layout,
    check_settings,
    check_zones,
    choose_controllers,
    links,
)
from chaos.runtimes.contract import Act, Cut, Evidence, Link, LinkFault, Manner, NodeExit, NodeState, Probe
from chaos.runtimes.process.node import BROKER, Node
from chaos.runtimes.process.ports import LOOPBACK, free_ports, is_free
from chaos.runtimes.process.proxies import Proxies, Routes
from chaos.runtimes.process.registry import Registration, claimed_ports, locked
from chaos.runtimes.process.slowing import Slowing
from chaos.toolchain.cache import Say
from chaos.toolchain.toxiproxy import toxiproxy_server

READY_S = 60.0
STOP_GRACE_S = 25.0
HEAL_S = 15.0
ASK_S = 1.0


class ProcessRuntime(Hurting, Slowing, ClockWitness):
    """`chaos.runtimes.contract.Runtime` over processes of this machine. Linux only.

    Files are below `folder`: nodes/N/{broker.properties, broker.log, trace.jsonl, data/}, toxiproxy.log. Started again
    on the same folder, the cluster has what it had.

    nodes: how many, with ids from 1, or which ids. settings: Kafka's names, for every broker. controllers: the voters'
    ids, else the first three (one, of fewer). proxied: False lets brokers and clients reach each other straight,
    without Toxiproxy: for development, no link can be hurt then. client_port: of the first zone's first listener, the
    others follow; else all are chosen. framed: links with a frame-aware relay, for protocol faults (`framed_links` of a
    plan). program: what is started with --config FILE for a broker. hurt: it is started
    with --faults FOLDER too, so that its disk and power can be hurt; seed: of what is drawn then.
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
        if self._framed:
            self.acts |= {Act.FRAMES}
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

    def env(self, name: str) -> Env:
        """As `Runtime.env`: this machine's clock, files and network."""
        return RealEnv(name)

    def bootstrap(self, zone: str) -> str:
        """As `Runtime.bootstrap`."""
        if zone not in (*self.zones, INTERNAL):
            raise Refused(f"there is no zone {zone!r}, only {', '.join(self.zones)}")
        return self._placed().bootstrap(zone)

    def links(self) -> tuple[Link, ...]:
        """As `Runtime.links`."""
        return links(self.nodes, self.zones)

    def state(self, node: int) -> NodeState:
        """As `Runtime.state`."""
        found = self._node(node)
        found.poll()
        return found.state

    def exits(self) -> tuple[NodeExit, ...]:
        """As `Runtime.exits`."""
        for node in self._nodes.values():
            node.poll()
        return tuple(sorted((each for node in self._nodes.values() for each in node.exits), key=lambda each: each.t_ns))

    async def kill(self, node: int) -> Evidence:
        """As `Runtime.kill`."""
        return await self._node(node).kill()

    async def stop_node(self, node: int, *, grace_s: float = 30.0) -> Evidence:
        """As `Runtime.stop_node`."""
        return await self._node(node).stop(grace_s)

    async def start_node(self, node: int) -> Evidence:
        """As `Runtime.start_node`."""
        found = self._node(node)
        return {**found.launch(), "ready_ns": await found.wait_ready(READY_S), **found.came_up}

    async def pause(self, node: int) -> Evidence:
        """As `Runtime.pause`."""
        return await self._node(node).pause()

    async def resume(self, node: int) -> Evidence:
        """As `Runtime.resume`."""
        return await self._node(node).resume()

    async def set_clock(self, node: int, offset_ms: float, *, rate: float = 1.0) -> Evidence:
        """As `Runtime.set_clock`. The broker looks at the file no more often than each 50 ms."""
        asked_ns = time.monotonic_ns()
        self._node(node).set_clock(offset_ms, rate)
        return {"offset_ms": offset_ms, "rate": rate, "asked_ns": asked_ns}

    async def fault_link(self, name: str, link: Link, fault: LinkFault) -> Evidence:
        """As `Runtime.fault_link`."""
        asked_ns = time.monotonic_ns()
        await self._hurtable().add(name, link, fault)
        told: Evidence = {"link": str(link), "fault": {"kind": type(fault).__name__, **asdict(fault)}}
        return {**told, "asked_ns": asked_ns, "began_ns": time.monotonic_ns()}

    async def heal_link(self, name: str, link: Link) -> Evidence:
        """As `Runtime.heal_link`."""
        asked_ns = time.monotonic_ns()
        hits = await self._hurtable().remove(name, link)
        told: Evidence = {"link": str(link), "asked_ns": asked_ns, "ended_ns": time.monotonic_ns()}
        return told if hits is None else {**told, "hits": hits}

    async def reset_links(self, links: Sequence[Link]) -> Evidence:
        """As `Runtime.reset_links`, but that a connection without bytes on their way is closed and not reset. How many
        there were is Toxiproxy's to know: `reset` is None.

        Not by Toxiproxy's reset_peer: of the connections that are open it ends only those that are used just then.
        """
        for link in links:
            await self._hurtable().add("reset", link, Cut(Manner.REFUSE))
        for link in links:
            await self._hurtable().remove("reset", link)
        return {"reset": None, "t_ns": time.monotonic_ns()}

    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> Probe:
        """As `Runtime.probe`."""
        return await asking.probe(*self._placed().address(link), timeout_s=timeout_s, pad_bytes=pad_bytes)

    async def ending(
        self, link: Link, *, timeout_s: float = 1.0, spoil: bool = False, opened: Callable[[], None] = lambda: None
    ) -> Probe:
        """As `Runtime.ending`."""
        address = self._placed().address(link)
        return await asking.ending(*address, timeout_s=timeout_s, spoil=spoil, opened=opened)

    async def heal(self) -> Evidence:
        """As `Runtime.heal`."""
        if self._proxies is not None:
            await self._proxies.reset()
        resumed = [node.id for node in self._nodes.values() if self.state(node.id) is NodeState.PAUSED]
        for each in resumed:
            await self.resume(each)
        await self._heal_disks()
        await self._heal_cpus()
        down = [node for node in self._nodes.values() if self.state(node.id) is NodeState.DOWN]
        for node in self._nodes.values():
            if node.clock.exists():
                node.clock.unlink()
        await self._bring_up(down)
        failed = await self._probe_all()
        return {
            "resumed": resumed,
            "started": [node.id for node in down],
            "links": len(self.links()),
            "failed": [str(link) for link in failed],
        }

    def files(self) -> Mapping[str, bytes]:
        """As `Runtime.files`: they are where they belong already."""
        return {}

    def trace_path(self, node: int) -> Path:
        """As `Runtime.trace_path`."""
        return self._node(node).trace

    def log_path(self, node: int) -> Path:
        """As `Runtime.log_path`."""
        return self._node(node).log

    def data_path(self, node: int) -> Path:
        """As `Runtime.data_path`."""
        return self._node(node).data

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
        """What a broker would refuse is refused here, where somebody reads it."""
        if self._program == BROKER:
            try:
                BrokerConfig.from_properties({**self._settings, **layout.settings(self.nodes[0])})
            except ConfigError as error:
                raise Refused(str(error)) from error

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
        )

    async def _prepare(self) -> None:
        """What must be done once, before the first start."""

    async def _start_nodes(self, layout: Layout, registration: Registration) -> None:
        for node in self.nodes:
            self._nodes[node] = self._new_node(node, layout, registration)
        await self._prepare()
        await self._bring_up(list(self._nodes.values()))
        with trio.move_on_after(READY_S):
            for zone in self.zones:
                for node in self.nodes:
                    await self._sees_all(Link(zone, node))
            return
        raise HarnessError(f"the brokers did not all see each other within {READY_S:g} s: see {self._folder}/nodes")

    async def _bring_up(self, nodes: Sequence[Node]) -> None:
        """Start nodes together and wait until each is ready. The first trouble is raised."""
        for node in nodes:
            node.launch()
        for node in nodes:
            await node.wait_ready(READY_S)

    async def _sees_all(self, link: Link) -> None:
        while True:
            with trio.move_on_after(ASK_S):
                try:
                    if await visible_brokers(*self._placed().address(link)) == set(self.nodes):
                        return
                except (OSError, MalformedFrame):
                    pass
            for gone in self.exits():
                raise HarnessError(f"broker {gone.node} ended with {gone.code}:\n{gone.last_words}")
            await trio.sleep(0.02)

    async def _probe_all(self) -> list[Link]:
        """Links that still give no answer when the time for healing is over."""
        waiting = dict.fromkeys(self.links())

        async def try_one(link: Link) -> None:
            while not (await self.probe(link)).ok:
                await trio.sleep(0.05)
            del waiting[link]

        with trio.move_on_after(HEAL_S):
            async with trio.open_nursery() as nursery:
                for link in self.links():
                    nursery.start_soon(try_one, link)
        return list(waiting)

    async def _stop_nodes(self) -> None:
        """Let every node leave in good order: links whole, none paused."""
        if self._proxies is not None:
            with contextlib.suppress(HarnessError):
                await self._proxies.reset()
        for node in self._nodes.values():
            if self.state(node.id) is NodeState.PAUSED:
                await node.resume()

        async def leave(node: Node) -> None:
            if self.state(node.id) is NodeState.RUNNING:
                await node.stop(STOP_GRACE_S)

        async with trio.open_nursery() as nursery:
            for node in self._nodes.values():
                nursery.start_soon(leave, node)

    async def _end_everything(self) -> None:
        for node in self._nodes.values():
            if self.state(node.id) is not NodeState.DOWN:
                await node.kill()
        if self._proxies is not None:
            await self._proxies.stop()
        if self._registration is not None:
            self._registration.close()
            self._lock.close()

    def _cluster_id(self) -> str:
        """Made at the first start on this folder and kept in it. 16 bytes, base64, as Kafka writes them."""
        kept = self._folder / "cluster-id"
        if not kept.exists():
            kept.write_text(urlsafe_b64encode(os.urandom(16)).decode().rstrip("=") + "\n")
        return kept.read_text().strip()

    def _lock_folder(self) -> None:
        """Two clusters on one folder would write into the same logs. Held until this one has stopped, or is killed."""
        self._lock = (self._folder / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise Refused(f"another cluster is running on {self._folder}") from None

    def _placed(self) -> Layout:
        assert self._layout is not None, "the runtime was not started"
        return self._layout

    def _hurtable(self) -> Proxies:
        if self._proxies is None:
            raise Refused("without Toxiproxy no link can be hurt")
        return self._proxies

    def _node(self, node: int) -> Node:
        if node not in self._nodes:
            raise HarnessError(f"there is no node {node}")
        return self._nodes[node]
