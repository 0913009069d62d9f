"""What the runtimes of real brokers share: nodes that have a process and a folder, links that are proxies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import trio

from broker.config import BrokerConfig, ConfigError
from broker.env import Env
from broker.real_env import RealEnv
from chaos.errors import HarnessError, Refused
from chaos.runtimes.contract import Cut, Evidence, Link, LinkFault, Manner, NodeExit, NodeState, Probe
from chaos.runtimes.layout import INTERNAL, Layout, links
from chaos.runtimes.real import inquiry
from chaos.runtimes.real.clock_trace import ClockWitness
from chaos.runtimes.real.disks import Hurting, HurtNode
from chaos.runtimes.real.readiness import silent_links

READY_S = 60.0
STOP_GRACE_S = 25.0
HEAL_S = 15.0


class BrokerNode(HurtNode, Protocol):
    """What is needed of a runtime's node."""

    exits: list[NodeExit]

    @property
    def trace(self) -> Path:
        """Its trace.jsonl."""

    @property
    def log(self) -> Path:
        """What it printed."""

    @property
    def clock(self) -> Path:
        """The order to its clock, where there is one."""

    async def kill(self) -> Evidence:
        """As `Runtime.kill`."""

    async def stop(self, grace_s: float) -> Evidence:
        """As `Runtime.stop_node`."""

    async def software(self) -> Evidence:
        """As `Runtime.software`, but for what it speaks."""

    async def upgrade(self) -> Evidence:
        """As `Runtime.upgrade_node`."""

    async def pause(self) -> Evidence:
        """As `Runtime.pause`."""

    async def resume(self) -> Evidence:
        """As `Runtime.resume`."""

    def set_clock(self, offset_ms: float, rate: float) -> None:
        """As `Runtime.set_clock`."""


class LinkProxies(Protocol):
    """What is needed of a runtime's proxies."""

    async def add(self, name: str, link: Link, fault: LinkFault) -> None:
        """Put a fault on a link."""

    async def remove(self, name: str, link: Link) -> int | None:
        """Take it off. How often it struck, where that is counted."""

    async def reset(self) -> None:
        """Take every fault off every link."""


class OfBrokers(Hurting, ClockWitness):
    """Part of `chaos.runtimes.contract.Runtime`: all but how nodes and proxies are made, started and ended.

    Files are below `_folder`: nodes/N/{broker.properties, broker.log, trace.jsonl, data/}, toxiproxy.log.
    """

    nodes: tuple[int, ...]
    zones: tuple[str, ...]
    _folder: Path
    _settings: Mapping[str, str]
    _layout: Layout | None
    _proxies: LinkProxies | None
    _nodes: Mapping[int, BrokerNode]

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

    # ------------------------------------------------------------------------------------------------------- nodes

    def state(self, node: int) -> NodeState:
        """As `Runtime.state`."""
        found = self._node(node)
        found.poll()
        return found.state

    def exits(self) -> tuple[NodeExit, ...]:
        """As `Runtime.exits`."""
        for each in self._nodes.values():
            each.poll()
        return tuple(sorted((gone for each in self._nodes.values() for gone in each.exits), key=lambda gone: gone.t_ns))

    async def kill(self, node: int) -> Evidence:
        """As `Runtime.kill`."""
        return await self._node(node).kill()

    async def stop_node(self, node: int, *, grace_s: float = 30.0) -> Evidence:
        """As `Runtime.stop_node`."""
        return await self._node(node).stop(grace_s)

    async def software(self, node: int) -> Evidence:
        """As `Runtime.software`."""
        found = await self._node(node).software()
        return {**found, "speaks": await inquiry.speaks(*self._placed().direct[INTERNAL, node])}

    async def upgrade_node(self, node: int) -> Evidence:
        """As `Runtime.upgrade_node`."""
        return await self._node(node).upgrade()

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

    # ------------------------------------------------------------------------------------------------------- links

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
        return await inquiry.probe(*self._placed().address(link), timeout_s=timeout_s, pad_bytes=pad_bytes)

    async def ending(
        self, link: Link, *, timeout_s: float = 1.0, spoil: bool = False, opened: Callable[[], None] = lambda: None
    ) -> Probe:
        """As `Runtime.ending`."""
        address = self._placed().address(link)
        return await inquiry.ending(*address, timeout_s=timeout_s, spoil=spoil, opened=opened)

    # --------------------------------------------------------------------------------------------------- the whole

    async def heal(self) -> Evidence:
        """As `Runtime.heal`."""
        if self._proxies is not None:
            await self._proxies.reset()
        resumed = [node for node in self.nodes if self.state(node) is NodeState.PAUSED]
        for node in resumed:
            await self.resume(node)
        await self._heal_disks()
        await self._heal_cpus()
        down = [node for node in self.nodes if self.state(node) is NodeState.DOWN]
        for each in self._nodes.values():
            each.clock.unlink(missing_ok=True)
        await self._bring_up(down)
        failed = await silent_links(self, HEAL_S)
        return {
            "resumed": resumed,
            "started": down,
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

    # ------------------------------------------------------------------------------------------------ for subclasses

    async def _bring_up(self, nodes: Sequence[int]) -> None:
        """Start nodes together and wait until each is ready. The first trouble is raised."""
        raise NotImplementedError

    async def _heal_cpus(self) -> None:
        """No node has less than its share of a CPU any more."""
        raise NotImplementedError

    def _node(self, node: int) -> BrokerNode:
        if node not in self._nodes:
            raise HarnessError(f"there is no node {node}")
        return self._nodes[node]

    def _placed(self) -> Layout:
        assert self._layout is not None, "the runtime was not started"
        return self._layout

    def _hurtable(self) -> LinkProxies:
        if self._proxies is None:
            raise Refused("without Toxiproxy no link can be hurt")
        return self._proxies

    def _check_broker_settings(self, layout: Layout) -> None:
        """What a broker would refuse is refused here, where somebody reads it."""
        try:
            BrokerConfig.from_properties({**self._settings, **layout.settings(self.nodes[0])})
        except ConfigError as error:
            raise Refused(str(error)) from error

    async def _stop_nodes(self) -> None:
        """Let every node leave in good order: links whole, none paused. What cannot be told so is ended later."""

        async def leave(node: BrokerNode) -> None:
            with contextlib.suppress(HarnessError):
                if self.state(node.id) is NodeState.PAUSED:
                    await node.resume()
                if self.state(node.id) is NodeState.RUNNING:
                    await node.stop(STOP_GRACE_S)

        if self._proxies is not None:
            with contextlib.suppress(HarnessError):
                await self._proxies.reset()
        async with trio.open_nursery() as nursery:
            for each in self._nodes.values():
                nursery.start_soon(leave, each)

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
