"""Implements the simulated cluster as `squall.chaos.runtimes.contract.Runtime`, in virtual time."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random

import trio

from squall.broker.config import ConfigError
from squall.broker.env import Env, Transport
from squall.broker.overriding import override
from squall.broker.protocol.errors import MalformedFrame
from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.broker_settings import fitted
from squall.chaos.runtimes.capabilities import CallCountingRuntime
from squall.chaos.runtimes.contract import (
    GONE,
    ClockReport,
    CrashOp,
    DiskFault,
    Evidence,
    Frames,
    Link,
    LinkFault,
    Loss,
    NodeExit,
    NodeState,
    ProbeResult,
    Runtime,
    RuntimeCapability,
)
from squall.chaos.runtimes.damage import How, Where
from squall.chaos.runtimes.layout import choose_controllers
from squall.chaos.runtimes.sim import inquiry
from squall.chaos.runtimes.sim.core import true_wall_ms
from squall.chaos.runtimes.sim.disk import SimDisk
from squall.chaos.runtimes.sim.env import SimEnv
from squall.chaos.runtimes.sim.node import DATA, SimNode
from squall.chaos.runtimes.sim.world import SimWorld
from squall.chaos.runtimes.wire.frames import BrokerTrafficKind

INTERNAL, INTERNAL_PORT, ZONE_PORT = "INTERNAL", 9000, 9100
READY_S = 60.0
STOP_GRACE_S = 25.0
HEAL_S = 15.0
ASK_S = 1.0
PROBER = "prober"


class SimRuntime(Runtime, CallCountingRuntime):
    """Simulates a cluster. nodes: their number (ids begin at 1) or their ids. controllers: the voters; None means the
    first three.
    """

    name = "sim"
    acts = frozenset(RuntimeCapability)
    noise_ms = 0.0

    def __init__(
        self,
        world: SimWorld,
        *,
        nodes: int | Sequence[int] = 3,
        zones: tuple[str, ...] = ("CLIENT",),
        settings: Mapping[str, str] | None = None,
        controllers: Sequence[int] | None = None,
    ) -> None:
        self.world = world
        self.nodes = tuple(range(1, nodes + 1)) if isinstance(nodes, int) else tuple(sorted(nodes))
        self.zones = zones
        self.controllers = tuple(controllers) if controllers is not None else choose_controllers(self.nodes)
        self._settings = fitted(settings or {}, len(self.nodes))
        self._envs: dict[str, SimEnv] = {}
        self._clocks_heard: dict[int, int] = {}
        self._cluster_id = urlsafe_b64encode(world.rng("cluster-id").randbytes(16)).decode().rstrip("=")
        for node in self.nodes:
            try:
                world.nodes[node] = SimNode(world, world.network, node, {**self._settings, **self._layout(node)})
            except ConfigError as error:
                raise PreconditionError(str(error)) from error
            world.network.register_address(_host(node), INTERNAL_PORT, PROBER, node)
            for at, zone in enumerate(zones):
                world.network.register_address(_host(node), ZONE_PORT + at, zone, node)

    def _layout(self, node: int) -> dict[str, str]:
        """Return a node's settings for its place in the cluster: id, roles, listeners, voters, peers."""
        ports = {INTERNAL: INTERNAL_PORT} | {zone: ZONE_PORT + at for at, zone in enumerate(self.zones)}
        listeners = ",".join(f"{name}://{_host(node)}:{port}" for name, port in ports.items())
        return {
            "node.id": str(node),
            "process.roles": "broker,controller" if node in self.controllers else "broker",
            "controller.quorum.voters": ",".join(f"{v}@{_host(v)}:{INTERNAL_PORT}" for v in self.controllers),
            "listeners": listeners,
            "advertised.listeners": listeners,
            "inter.broker.listener.name": INTERNAL,
            "log.dirs": DATA,
            "squall.peers": ",".join(f"{o}@{_host(o)}:{INTERNAL_PORT}" for o in self.nodes if o != node),
            "squall.cluster.id": self._cluster_id,
        }

    # ------------------------------------------------------------------ life

    @override
    async def start(self) -> None:
        for node in self.nodes:
            self._node(node).launch()
        for node in self.nodes:
            await self._node(node).wait_ready(READY_S)
        with trio.move_on_after(READY_S):
            for at in range(len(self.zones)):
                for node in self.nodes:
                    await self._sees_all(node, ZONE_PORT + at)
            return
        raise HarnessError(f"the brokers did not all see each other within {READY_S:g} s")

    async def _sees_all(self, node: int, port: int) -> None:
        env = self.env("starter")
        while True:
            with trio.move_on_after(ASK_S):
                try:
                    if await inquiry.visible_brokers(env, _host(node), port) == set(self.nodes):
                        return
                except (OSError, MalformedFrame):
                    pass
            for gone in self.exits():
                raise HarnessError(f"broker {gone.node} ended with {gone.code}:\n{gone.last_words}")
            await trio.sleep(0.02)

    @override
    async def stop(self) -> None:
        with trio.CancelScope(shield=True):
            # Faults first: a broker that is paused or cut off would not shut down within its grace period.
            for wire in self.world.network.wires():
                wire.clear()
            for node in self.world.nodes.values():
                node.forget_crash()
                if node.state is NodeState.PAUSED:
                    node.resume()
            async with trio.open_nursery() as nursery:
                for node in self.world.nodes.values():
                    if node.state is NodeState.RUNNING:
                        nursery.start_soon(node.stop, STOP_GRACE_S)

    @override
    def env(self, name: str) -> Env:
        """Return the environment of this name for client code, with its own disk. Equal names share one environment."""
        if name not in self._envs:
            disk = SimDisk(self.world.rng("disk", name))
            fs = disk.mount(lambda op, path: None)
            world = self.world
            self._envs[name] = SimEnv(world, world.network, name, 1, host=name, source=None, fs=fs, disk=disk)
        return self._envs[name]

    @override
    def bootstrap(self, zone: str) -> str:
        if zone not in (*self.zones, INTERNAL):
            raise PreconditionError(f"there is no zone {zone!r}, only {', '.join(self.zones)}")
        port = INTERNAL_PORT if zone == INTERNAL else ZONE_PORT + self.zones.index(zone)
        return ",".join(f"{_host(node)}:{port}" for node in self.nodes)

    @override
    def links(self) -> tuple[Link, ...]:
        between = tuple(Link(a, b) for a in self.nodes for b in self.nodes if a != b)
        return between + tuple(Link(zone, node) for zone in self.zones for node in self.nodes)

    @override
    def state(self, node: int) -> NodeState:
        return self._node(node).state

    @override
    def exits(self) -> tuple[NodeExit, ...]:
        found = [each for node in self.world.nodes.values() for each in node.exits]
        return tuple(sorted(found, key=lambda each: (each.t_ns, each.node)))

    @override
    def troubles(self) -> tuple[str, ...]:
        """Return an empty tuple: a simulation has no proxies or OS processes that could end unasked."""
        return ()

    # ------------------------------------------------------------------ acts on nodes

    @override
    async def kill(self, node: int) -> Evidence:
        asked_ns = self.world.now_ns()
        pid = self._node(node).pid
        self._node(node).die()
        await trio.lowlevel.checkpoint()
        gone = self._node(node).state is NodeState.DOWN
        return {"pid": pid, "simulated": True, "gone": gone, "asked_ns": asked_ns, "ended_ns": self.world.now_ns()}

    @override
    async def stop_node(self, node: int, *, grace_s: float = 30.0) -> Evidence:
        asked_ns, found = self.world.now_ns(), self._node(node)
        if found.state is not NodeState.RUNNING:
            raise HarnessError(f"broker {node} is {found.state.value}")
        pid, before = found.pid, len(self.world.trace)
        left = await found.stop(grace_s)
        said = [line for line in self.world.trace[before:] if line["n"] == found.name and line["e"] == "node_stopped"]
        code = 0 if left else -9
        told: Evidence = {"pid": pid, "simulated": True, "code": code}
        for word in ("controlled", "alone"):
            told[word] = left and any(line.get(word) for line in said)
        return {**told, "asked_ns": asked_ns, "ended_ns": self.world.now_ns()}

    @override
    async def start_node(self, node: int) -> Evidence:
        found = self._node(node)
        return {**found.launch(), "ready_ns": await found.wait_ready(READY_S)}

    @override
    async def pause(self, node: int) -> Evidence:
        asked_ns, found = self.world.now_ns(), self._node(node)
        if found.state is not NodeState.RUNNING:
            raise HarnessError(f"broker {node} is {found.state.value}")
        found.pause()
        paused_ns = self.world.now_ns()
        probe = await self._probe(PROBER, node, INTERNAL_PORT, 0.3)
        told: Evidence = {"pid": found.pid, "simulated": True, "state": "T", "probe": probe.evidence()}
        return {**told, "asked_ns": asked_ns, "paused_ns": paused_ns}

    @override
    async def resume(self, node: int) -> Evidence:
        asked_ns, found = self.world.now_ns(), self._node(node)
        if found.state is not NodeState.PAUSED:
            raise HarnessError(f"broker {node} is {found.state.value}")
        was = "T" if found.is_held else "S"
        found.resume()
        await trio.lowlevel.checkpoint()
        return {
            "pid": found.pid,
            "simulated": True,
            "found": was,
            "state": "S",
            "asked_ns": asked_ns,
            "resumed_ns": self.world.now_ns(),
        }

    @override
    async def activity(self, node: int) -> Evidence:
        found = self._node(node)
        await trio.lowlevel.checkpoint()
        told: Evidence = {"node": node, "t_ns": self.world.now_ns()}
        if found.env is None or not found.env.alive:
            return {**told, "state": GONE}
        return {**told, "state": "T" if found.is_held else "S", "calls": sum(found.calls.values())}

    @override
    async def slow_cpu(self, name: str, node: int, share: float) -> Evidence:
        """Limit a node to `share` of a CPU (0 to 1), by stopping it for the rest of each tenth of a second. `heal_cpu`
        ends the limit by its `name`. Evidence: by (the mechanism), share, began_ns.
        """
        slowness = self._node(node).slowness
        if name in slowness.shares:
            raise HarnessError(f"broker {node} already has a fault named {name}")
        slowness.add(name, share)
        await trio.lowlevel.checkpoint()
        return {"by": "effects wait", "share": share, "began_ns": self.world.now_ns()}

    @override
    async def heal_cpu(self, name: str, node: int) -> Evidence:
        stops, ran_share = self._node(node).slowness.remove(name)
        await trio.lowlevel.checkpoint()
        told: Evidence = {"stops": stops, "ran_share": round(ran_share, 3), "cpu_share": None}
        return {**told, "ended_ns": self.world.now_ns()}

    @override
    async def set_clock(self, node: int, offset_ms: float, *, rate: float = 1.0) -> Evidence:
        found = self._node(node)
        before_ms = found.clock.wall_ms()
        found.bend_clock(offset_ms, rate)
        await trio.lowlevel.checkpoint()
        told: Evidence = {"offset_ms": offset_ms, "rate": rate, "moved_ms": found.clock.wall_ms() - before_ms}
        return {**told, "asked_ns": self.world.now_ns()}

    @override
    def clock_reports(self, node: int) -> Sequence[ClockReport]:
        """Return the node's reports of its wall clock. Their offsets are exact: the simulation knows the true time."""
        name, first = self._node(node).name, self._clocks_heard.setdefault(node, len(self.world.trace))
        said = [line for line in self.world.trace[first:] if line["e"] == "clock" and line["n"] == name]
        return tuple(
            ClockReport(int(each["t"] * 1e9), each["w"] - true_wall_ms(each["t"]), each["offset_ms"], each["rate"])
            for each in said
        )

    @override
    async def power_loss(self, nodes: Sequence[int]) -> Evidence:
        asked_ns = self.world.now_ns()
        lost = {str(node): self._node(node).die(power=True) for node in nodes}
        await trio.lowlevel.checkpoint()
        return {"nodes": lost, "asked_ns": asked_ns, "ended_ns": self.world.now_ns()}

    @override
    async def crash_at(self, node: int, op: CrashOp, nth: int, *, within_s: float) -> Evidence:
        asked_ns, found = self.world.now_ns(), self._node(node)
        if found.state is not NodeState.RUNNING:
            raise HarnessError(f"broker {node} is {found.state.value}")
        incarnation = found.incarnation
        point = found.crash_at(op, nth)
        try:
            with trio.move_on_after(within_s):
                await point.struck.wait()
        finally:
            found.forget_crash()
        told: Evidence = {"op": op, "nth": nth, "gone": point.at is not None, "at": point.at}
        return {**told, "incarnation": incarnation, "asked_ns": asked_ns, "ended_ns": self.world.now_ns()}

    @override
    def calls(self, node: int, op: CrashOp) -> int:
        return self._node(node).calls[op]

    # ------------------------------------------------------------------ acts on disks

    @override
    async def fault_disk(self, name: str, node: int, fault: DiskFault) -> Evidence:
        self._node(node).disk.add_fault(name, fault)
        await trio.lowlevel.checkpoint()
        return {"fault": {"kind": type(fault).__name__, **asdict(fault)}, "began_ns": self.world.now_ns()}

    @override
    async def heal_disk(self, name: str, node: int) -> Evidence:
        hits = self._node(node).disk.remove_fault(name)
        await trio.lowlevel.checkpoint()
        return {"hits": hits, "ended_ns": self.world.now_ns()}

    @override
    async def software(self, node: int) -> Evidence:
        return {"runs": "this one", "by": "the simulator", "speaks": {}, "node": self._node(node).id}

    @override
    async def upgrade_node(self, node: int) -> Evidence:
        raise PreconditionError(
            f"node {node}: in a simulation there is one version of the broker, the one that simulates"
        )

    @override
    async def rot(self, node: int, *, path_glob: str = "*.log", bits: int = 1, where: Where = "checked") -> Evidence:
        rng: Random = self.world.rng("rot", node, self.world.kernel.now)
        await trio.lowlevel.checkpoint()
        return {**self._node(node).disk.rot(path_glob, rng, bits, where), "t_ns": self.world.now_ns()}

    @override
    async def damage(self, node: int, how: How, *, size: int = 1000) -> Evidence:
        if self.state(node) is not NodeState.DOWN:
            raise HarnessError(f"node {node} is {self.state(node).value}, not down")
        rng: Random = self.world.rng("damage", node, self.world.kernel.now)
        await trio.lowlevel.checkpoint()
        return {**self._node(node).disk.damage(how, size, rng), "t_ns": self.world.now_ns()}

    # ------------------------------------------------------------------ acts on links

    @override
    async def fault_link(self, name: str, link: Link, fault: LinkFault) -> Evidence:
        self._check(link)
        asked_ns = self.world.now_ns()
        self.world.network.wire(link.source, link.target).add(name, fault)
        await trio.lowlevel.checkpoint()
        told: Evidence = {"link": str(link), "fault": {"kind": type(fault).__name__, **asdict(fault)}}
        return {**told, "asked_ns": asked_ns, "began_ns": self.world.now_ns()}

    @override
    async def heal_link(self, name: str, link: Link) -> Evidence:
        self._check(link)
        asked_ns = self.world.now_ns()
        wire = self.world.network.wire(link.source, link.target)
        counted = isinstance(wire.fault(name), Loss | Frames)
        struck = wire.remove(name)
        await trio.lowlevel.checkpoint()
        told: Evidence = {"link": str(link), "asked_ns": asked_ns, "ended_ns": self.world.now_ns()}
        return {**told, **struck} if counted else told

    @override
    async def reset_links(self, links: Sequence[Link]) -> Evidence:
        for link in links:
            self._check(link)
        found = sum(self.world.network.wire(link.source, link.target).reset_all() for link in links)
        await trio.lowlevel.checkpoint()
        return {"reset": found, "t_ns": self.world.now_ns()}

    @override
    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> ProbeResult:
        self._check(link)
        return await self._probe(link.source, link.target, self._port(link), timeout_s, pad_bytes)

    async def connect(self, link: Link) -> Transport:
        """Open a connection over a link, through its faults. Raises OSError if the connection is refused."""
        return await self._prober(link.source).connect(_host(link.target), self._port(link))

    async def probe_traffic(self, link: Link, traffic: BrokerTrafficKind, *, timeout_s: float = 1.0) -> ProbeResult:
        """Probe a link with a request of one kind of traffic."""
        self._check(link)
        env, host = self._prober(link.source), _host(link.target)
        return await inquiry.probe_traffic(env, host, self._port(link), traffic, timeout_s=timeout_s)

    @override
    async def ending(
        self, link: Link, *, timeout_s: float = 1.0, spoil: bool = False, opened: Callable[[], None] = lambda: None
    ) -> ProbeResult:
        self._check(link)
        env, host = self._prober(link.source), _host(link.target)
        return await inquiry.ending(env, host, self._port(link), timeout_s=timeout_s, spoil=spoil, opened=opened)

    def _port(self, link: Link) -> int:
        return ZONE_PORT + self.zones.index(link.source) if isinstance(link.source, str) else INTERNAL_PORT

    async def _probe(
        self, source: int | str, node: int, port: int, timeout_s: float, pad_bytes: int = 0
    ) -> ProbeResult:
        env, host = self._prober(source), _host(node)
        return await inquiry.probe(env, host, port, timeout_s=timeout_s, pad_bytes=pad_bytes)

    def _prober(self, source: int | str) -> SimEnv:
        env = self.env(f"prober-{source}")
        assert isinstance(env, SimEnv)
        env.source = source
        return env

    @override
    async def heal(self) -> Evidence:
        for wire in self.world.network.wires():
            wire.clear()
        found = list(self.world.nodes.values())
        for node in found:
            node.forget_crash()
            node.disk.clear_faults()
            node.slowness.clear()
            if node.clock.is_bent:
                node.bend_clock(0.0, 1.0)
        resumed = [node.id for node in found if node.state is NodeState.PAUSED]
        for each in resumed:
            await self.resume(each)
        down = [node for node in found if node.state is NodeState.DOWN]
        for node in down:
            node.launch()
        for node in down:
            await node.wait_ready(READY_S)
        failed = await self._probe_all()
        return {
            "resumed": resumed,
            "started": [node.id for node in down],
            "links": len(self.links()),
            "failed": [str(link) for link in failed],
        }

    async def _probe_all(self) -> list[Link]:
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

    # ------------------------------------------------------------------ what is kept

    @override
    def files(self) -> Mapping[str, bytes]:
        kept: dict[str, bytes] = {}
        for node in self.world.nodes.values():
            lines = self.world.trace_text.get(node.name, [])
            kept[f"nodes/{node.id}/trace.jsonl"] = b"".join(line + b"\n" for line in lines)
            kept[f"nodes/{node.id}/broker.log"] = "".join(node.words).encode()
            for path, content in node.disk.files().items():
                inside = "/" + path.lstrip("/")
                kept[f"nodes/{node.id}/data{inside.removeprefix(DATA)}"] = content
        return kept

    @override
    def trace_path(self, node: int) -> Path:
        """Return the path of the node's trace.jsonl in the run directory. It is a key of the result of `files`."""
        return Path(f"nodes/{node}/trace.jsonl")

    @override
    def log_path(self, node: int) -> Path:
        return Path(f"nodes/{node}/broker.log")

    @override
    def data_path(self, node: int) -> Path:
        return Path(f"nodes/{node}/data")

    def _check(self, link: Link) -> None:
        if link not in self.links():
            raise HarnessError(f"there is no link {link}")

    def _node(self, node: int) -> SimNode:
        if node not in self.world.nodes:
            raise HarnessError(f"there is no node {node}")
        return self.world.nodes[node]


def _host(node: int) -> str:
    return f"broker-{node}"
