"""Runs a cluster as OS processes of this machine: brokers on loopback, and one Toxiproxy through which every link
leads.
"""

from __future__ import annotations

import os
import platform
import random
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

import trio

from squall.broker.overriding import override
from squall.chaos.errors import PreconditionError
from squall.chaos.runtimes.contract import Evidence, Link, NodeState
from squall.chaos.runtimes.layout import INTERNAL, Address, AddressLayout
from squall.chaos.runtimes.process.node import ProcessNode
from squall.chaos.runtimes.process.program import BROKER, BrokerProgram, SquallProgram
from squall.chaos.runtimes.real.blueprint import Blueprint
from squall.chaos.runtimes.real.brokers import Nodes
from squall.chaos.runtimes.real.links import LinkProxies
from squall.chaos.runtimes.real.processes.ports import LOOPBACK, free_ports, is_free
from squall.chaos.runtimes.real.processes.proxies import ProcessProxies
from squall.chaos.runtimes.real.processes.registry import RunRegistration, claimed_ports, locked
from squall.chaos.runtimes.real.runtime import ClusterBackend
from squall.chaos.toolchain.cache import Say
from squall.chaos.toolchain.toxiproxy import toxiproxy_server

Claim = Callable[[int], list[Address]]
"""Is a function that returns this many free addresses of this machine, and reserves them for the run."""


class BrokerSoftware(Protocol):
    """Supplies what differs between Squall's and Apache Kafka's brokers as OS processes: the program of each node, and
    the addresses.
    """

    def place(self, plan: Blueprint, claim: Claim) -> AddressLayout:
        """Choose every address of the cluster; `claim` reserves free ones. Raise PreconditionError for settings that
        the brokers would refuse.
        """

    def program(self, plan: Blueprint, node: int, layout: AddressLayout) -> BrokerProgram:
        """Return the object that configures and starts the broker of one node. layout: the cluster's addresses."""


class SquallSoftware(BrokerSoftware):
    """Supplies the programs and addresses of Squall's own brokers.

    proxied: False connects brokers and clients directly. client_port: the port of the first broker's listener for the
    first client zone; the other brokers' listeners have the next ports. None: free ports are chosen. client_host: the
    host name of these listeners. program: the command that starts a broker. faulted: brokers also get `--faults
    FOLDER`, for disk faults and power losses. second: a folder with a second version of the broker, to which brokers
    can be upgraded.
    """

    def __init__(
        self,
        *,
        proxied: bool = True,
        client_port: int | None = None,
        client_host: str = LOOPBACK,
        program: tuple[str, ...] = BROKER,
        faulted: bool = False,
        second: Path | None = None,
    ) -> None:
        self._proxied, self._client_port, self._client_host = proxied, client_port, client_host
        self._program, self._faulted, self._second = program, faulted, second

    @override
    def place(self, plan: Blueprint, claim: Claim) -> AddressLayout:
        listeners = [(name, node) for name in (INTERNAL, *plan.zones) for node in plan.nodes]
        proxied = plan.links() if self._proxied else ()
        here = claim(len(listeners) + len(proxied))
        # Not strict: behind the listeners' addresses `here` has those of the proxies.
        direct = dict(zip(listeners, here, strict=False)) | client_addresses(plan, self._client_port, self._client_host)
        proxies = dict(zip(proxied, here[len(listeners) :], strict=True))
        layout = AddressLayout(plan.nodes, plan.controllers, plan.zones, direct, proxies)
        # Another program may accept other settings.
        if self._program == BROKER:
            plan.check_brokers_settings(layout)
        return layout

    @override
    def program(self, plan: Blueprint, node: int, layout: AddressLayout) -> BrokerProgram:
        settings = {**plan.settings, **layout.settings(node), "squall.cluster.id": plan.cluster_id()}
        return SquallProgram(
            plan.files(node), settings, program=self._program, faulted=self._faulted, second=self._second
        )


class ProcessBackend(ClusterBackend):
    """Runs a cluster's brokers as OS processes of this machine. proxied: False starts no Toxiproxy; then no link can
    carry a fault. framed: links that lead through Toxiproxy and also through the relay that parses Kafka requests, for
    protocol faults.
    """

    def __init__(
        self,
        plan: Blueprint,
        software: BrokerSoftware,
        *,
        proxied: bool = True,
        framed: Collection[Link] = (),
        say: Say,
    ) -> None:
        if platform.system() != "Linux":
            raise PreconditionError(
                "the process runtime needs Linux: it reads /proc and ties processes to the harness by prctl"
            )
        self.brokers: Nodes[ProcessNode] = Nodes()
        self._plan, self._software = plan, software
        self._proxied, self._framed, self._say = proxied, framed, say
        self._registration: RunRegistration | None = None
        self._proxies: ProcessProxies | None = None
        self._api: Address = (LOOPBACK, 0)

    @property
    def api(self) -> Address:
        """Returns the address of Toxiproxy's API."""
        return self._api

    @override
    async def make(self) -> tuple[AddressLayout, LinkProxies | None]:
        plan = self._plan
        server = await trio.to_thread.run_sync(toxiproxy_server, self._say) if self._proxied else None
        registration = RunRegistration(f"{plan.folder.name}-{os.getpid()}-{os.urandom(4).hex()}", plan.folder)
        self._registration = registration
        layout = self._software.place(plan, self._claim)
        if server is not None:
            (self._api,) = self._claim(1)
            self._proxies = await ProcessProxies.start(
                server,
                api_port=self._api[1],
                families=layout.families(),
                log=plan.folder / "toxiproxy.log",
                registration=registration,
                framed=self._framed,
            )
        for node in plan.nodes:
            port = layout.direct[INTERNAL, node][1]
            program = self._software.program(plan, node, layout)
            self.brokers[node] = ProcessNode(
                node, plan.files(node), program, registration=registration, probe_port=port
            )
        async with trio.open_nursery() as nursery:
            for each in self.brokers.values():
                nursery.start_soon(each.program.prepare)
        return layout, self._proxies

    @override
    async def start_node(self, node: int, ready_s: float) -> Evidence:
        found = self.brokers[node]
        return {**found.launch(), "ready_ns": await found.wait_ready(ready_s), **found.came_up}

    @override
    async def bring_up(self, nodes: Sequence[int], ready_s: float) -> None:
        # All are launched before the first wait: no KRaft node is ready before a majority of the voters runs.
        for node in nodes:
            self.brokers[node].launch()
        for node in nodes:
            await self.brokers[node].wait_ready(ready_s)

    @override
    async def end(self) -> None:
        for each in self.brokers.values():
            each.poll()
            if each.state is not NodeState.DOWN:
                await each.kill()
        if self._proxies is not None:
            await self._proxies.stop()
        if self._registration is not None:
            self._registration.close()

    def _claim(self, count: int) -> list[Address]:
        assert self._registration is not None, "ports are claimed in a run's name"
        with locked():
            ports = free_ports(count, claimed_ports(), random.Random())
            self._registration.claim_ports(ports)
        return [(LOOPBACK, port) for port in ports]


def client_addresses(plan: Blueprint, first: int | None, host: str) -> dict[tuple[str, int], Address]:
    """Return the addresses of the listeners for the first client zone, by (zone, node). The first node gets port
    `first`, the other nodes the ports after it: {("CLIENT", 1): (host, first), ...}. Empty if `first` is None. Raise
    PreconditionError if a port is taken.
    """
    if first is None:
        return {}
    ports = dict(enumerate(plan.nodes, first))
    for port in ports:
        if not is_free(port):
            raise PreconditionError(f"port {port} is taken by another program: give another one")
    return {(plan.zones[0], node): (host, port) for port, node in ports.items()}
