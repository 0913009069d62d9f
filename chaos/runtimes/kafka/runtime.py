"""Apache Kafka as processes of this machine, behind the same Toxiproxy links as our own brokers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import trio

from chaos.errors import Refused
from chaos.runtimes.contract import Act, Evidence, Link, Probe
from chaos.runtimes.kafka.layout import CONTROLLER, GIVEN, SMALL, KafkaLayout, link_host
from chaos.runtimes.kafka.node import KafkaNode
from chaos.runtimes.layout import INTERNAL, Layout
from chaos.runtimes.process.node import Node
from chaos.runtimes.process.runtime import ProcessRuntime
from chaos.runtimes.real.framed_links import Routes
from chaos.runtimes.real.inquiry import probe
from chaos.runtimes.real.processes.ports import LOOPBACK, free_ports
from chaos.runtimes.real.processes.proxies import Proxies
from chaos.runtimes.real.processes.registry import Registration, claimed_ports, locked
from chaos.toolchain.cache import Say
from chaos.toolchain.kafka import ApacheKafka

STRANGE = "squall."
"""What settings of ours begin with that no Kafka knows."""


class KafkaRuntime(ProcessRuntime):
    """`chaos.runtimes.contract.Runtime`: KRaft nodes, each broker and controller as in a cluster of ours.

    Files as of `ProcessRuntime`, but for the traces, which Kafka does not write: what its log says stands for them.
    `settings` are what `kafka_settings` left.
    """

    def __init__(
        self,
        folder: Path,
        *,
        kafka: ApacheKafka,
        nodes: tuple[int, ...] = (1, 2, 3),
        zones: tuple[str, ...] = ("CLIENT",),
        settings: Mapping[str, str] | None = None,
        framed: Sequence[Link] = (),
        second: ApacheKafka | None = None,
        say: Say = lambda line: None,
    ) -> None:
        given = dict(settings or {})
        super().__init__(
            folder, nodes=nodes, zones=zones, settings={**_replicated(nodes), **SMALL, **given}, framed=framed, say=say
        )
        self.acts = frozenset(self.acts - {Act.CLOCK}) | ({Act.UPGRADE} if second is not None else set())
        self.kafka, self.second_kafka = kafka, second

    async def set_clock(self, node: int, offset_ms: float, *, rate: float = 1.0) -> Evidence:
        """As `Runtime.set_clock`."""
        raise Refused(f"Apache Kafka has no clock that could be bent from outside (node {node})")

    async def probe(self, link: Link, *, timeout_s: float = 1.0, pad_bytes: int = 0) -> Probe:
        """As `Runtime.probe`. A link between nodes is two proxies: whole where both answer, cut where none does."""
        layout, proxies = self._kafka_layout(), self._hurtable()
        assert isinstance(proxies, Proxies)
        addresses = [layout.address(link)]
        if isinstance(link.source, int):
            addresses.append(layout.control(link))
        found: dict[int, Probe] = {}

        async def one(at: int) -> None:
            found[at] = await probe(*addresses[at], timeout_s=timeout_s, pad_bytes=pad_bytes)

        async with trio.open_nursery() as nursery:
            for at in range(len(addresses)):
                nursery.start_soon(one, at)
        return one_of([found[at] for at in range(len(addresses))], hurt=proxies.hurt(link))

    def _place(self, registration: Registration) -> Layout:
        listeners = [(name, node) for name in (INTERNAL, CONTROLLER, *self.zones) for node in self.nodes]
        outer = [link for link in self.links() if not isinstance(link.source, int)]
        with locked():
            ports = free_ports(len(listeners) + len(outer) + 1, claimed_ports(), random.Random())
            registration.claim_ports(ports)
        here = [(LOOPBACK, port) for port in ports]
        direct = dict(zip(listeners, here, strict=False))
        proxies = dict(zip(outer, here[len(listeners) :], strict=False))
        for link in self.links():
            if isinstance(link.source, int):
                proxies[link] = (link_host(link), direct[INTERNAL, link.target][1])
        self._api_port = ports[-1]
        return KafkaLayout(self.nodes, self._controllers, self.zones, direct, proxies)

    def _check_settings(self, layout: Layout) -> None:
        """Kafka says itself what it does not take."""

    def _routes(self, layout: Layout) -> list[Routes]:
        return [*self._kafka_layout().families()]

    def _new_node(self, node: int, layout: Layout, registration: Registration) -> Node:
        return KafkaNode(
            node,
            self._folder / "nodes" / str(node),
            {**self._settings, **layout.settings(node)},
            registration=registration,
            probe_port=layout.direct[INTERNAL, node][1],
            kafka=self.kafka,
            second=self.second_kafka,
            hosts=self._kafka_layout().hosts(node),
        )

    async def _prepare(self) -> None:
        async with trio.open_nursery() as nursery:
            for node in self._nodes.values():
                assert isinstance(node, KafkaNode)
                nursery.start_soon(trio.to_thread.run_sync, partial(node.format, self._cluster_id()))

    def _kafka_layout(self) -> KafkaLayout:
        layout = self._placed()
        assert isinstance(layout, KafkaLayout)
        return layout


def kafka_settings(given: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """A plan's settings without those of ours that no Kafka knows, and the names of these. Refused for addresses."""
    for name in given:
        if name in GIVEN:
            raise Refused(f"setting {name} cannot be given: it follows from where the broker runs")
    ours = tuple(sorted(name for name in given if name.startswith(STRANGE)))
    return {name: value for name, value in given.items() if name not in ours}, ours


def one_of(probes: list[Probe], *, hurt: bool) -> Probe:
    """What the probes of a link's proxies say of it: one answer speaks against a cut, one silence against its end."""
    ok = any(each.ok for each in probes) if hurt else all(each.ok for each in probes)
    # A round trip is as long as the shortest of those that were: nothing is made of one that another one disproves.
    round_trip_ms = min(each.round_trip_ms for each in probes if each.ok or not ok)
    return Probe(ok, round_trip_ms, None if ok else next(each.error for each in probes if not each.ok))


def _replicated(nodes: tuple[int, ...]) -> dict[str, str]:
    """Kafka's own topics on as many brokers as there are."""
    factor, min_isr = str(min(3, len(nodes))), str(2 if len(nodes) >= 3 else 1)
    names = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    replicas = {f"{name}.replication.factor": factor for name in names}
    return replicas | {f"{name}.min.isr": min_isr for name in names[1:]}
