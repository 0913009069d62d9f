"""Implements the runtime that runs Apache Kafka's brokers as OS processes of this machine. Links lead through
Toxiproxy, as those of Squall brokers do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from squall.broker.overriding import override
from squall.chaos.errors import PreconditionError
from squall.chaos.runtimes.broker_settings import fitted
from squall.chaos.runtimes.contract import Link, RuntimeCapability
from squall.chaos.runtimes.kafka.layout import CONTROLLER, GIVEN, HOME, SMALL, KafkaLayout, link_host
from squall.chaos.runtimes.kafka.program import KafkaProgram
from squall.chaos.runtimes.layout import INTERNAL, AddressLayout
from squall.chaos.runtimes.process.backend import BrokerSoftware, Claim, ProcessBackend, client_addresses
from squall.chaos.runtimes.process.cpu_share import ThrottlingCpuLimiter
from squall.chaos.runtimes.process.program import BrokerProgram
from squall.chaos.runtimes.process.runtime import ACTS
from squall.chaos.runtimes.real.blueprint import Blueprint, blueprint
from squall.chaos.runtimes.real.clocks import NoClocks
from squall.chaos.runtimes.real.runtime import RealRuntime
from squall.chaos.toolchain.cache import Say
from squall.chaos.toolchain.kafka import ApacheKafka

STRANGE = "squall."
"""Is the prefix of Squall's own broker settings, which Kafka does not know."""
SHARE = {"share.coordinator.state.topic.replication.factor": 3, "share.coordinator.state.topic.min.isr": 2}
"""Holds Kafka's defaults for the internal topic of share groups (KIP-932). Squall's own broker has no share groups."""


class KafkaSoftware(BrokerSoftware):
    """Makes Apache Kafka's KRaft nodes, each a broker and a controller as in a Squall cluster. Kafka itself refuses
    invalid settings.
    """

    def __init__(
        self,
        kafka: ApacheKafka,
        second: ApacheKafka | None,
        *,
        proxied: bool = True,
        client_port: int | None = None,
        client_host: str = HOME,
    ) -> None:
        self._kafka, self._second = kafka, second
        self._proxied, self._client_port, self._client_host = proxied, client_port, client_host

    @override
    def place(self, plan: Blueprint, claim: Claim) -> AddressLayout:
        listeners = [(name, node) for name in (INTERNAL, CONTROLLER, *plan.zones) for node in plan.nodes]
        proxied = plan.links() if self._proxied else ()
        outer = [link for link in proxied if not isinstance(link.source, int)]
        here = claim(len(listeners) + len(outer))
        direct = dict(zip(listeners, here, strict=False)) | client_addresses(plan, self._client_port, self._client_host)
        proxies = dict(zip(outer, here[len(listeners) :], strict=True))
        for link in proxied:
            if isinstance(link.source, int):
                proxies[link] = (link_host(link), direct[INTERNAL, link.target][1])
        return KafkaLayout(plan.nodes, plan.controllers, plan.zones, direct, proxies)

    @override
    def program(self, plan: Blueprint, node: int, layout: AddressLayout) -> BrokerProgram:
        assert isinstance(layout, KafkaLayout), "as this placed it"
        settings = {**plan.settings, **layout.settings(node)}
        return KafkaProgram(
            plan.files(node),
            settings,
            plan.cluster_id(),
            kafka=self._kafka,
            second=self._second,
            hosts=layout.hosts(node),
        )


class KafkaRuntime(RealRuntime):
    """Runs brokers of Apache Kafka as OS processes.

    Its files are those of `RealRuntime` without trace.jsonl: Kafka writes no trace, and broker.log replaces it.
    settings: a plan's settings without those that only Squall's broker knows (`kafka_settings`). proxied: False
    connects brokers and clients directly, without Toxiproxy. client_port, client_host: the port and host name of the
    first broker's listener for the first client zone; the other brokers' listeners have the next ports.
    """

    def __init__(
        self,
        folder: Path,
        *,
        kafka: ApacheKafka,
        nodes: tuple[int, ...] = (1, 2, 3),
        zones: tuple[str, ...] = ("CLIENT",),
        settings: Mapping[str, str] | None = None,
        controllers: Sequence[int] | None = None,
        proxied: bool = True,
        client_port: int | None = None,
        client_host: str = HOME,
        framed: Sequence[Link] = (),
        second: ApacheKafka | None = None,
        say: Say = lambda line: None,
    ) -> None:
        plan = blueprint(folder, nodes, zones, fitted({**SMALL, **(settings or {})}, len(nodes), SHARE), controllers)
        software = KafkaSoftware(kafka, second, proxied=proxied, client_port=client_port, client_host=client_host)
        framed = framed if proxied else ()
        backend = ProcessBackend(plan, software, proxied=proxied, framed=framed, say=say)
        links = {RuntimeCapability.LINK} if proxied else set()
        acts = ACTS | links | ({RuntimeCapability.FRAMES} if framed else set())
        acts |= {RuntimeCapability.UPGRADE} if second is not None else set()
        clocks, cpus = NoClocks("Apache Kafka"), ThrottlingCpuLimiter(backend.brokers)
        # A plan calls this runtime `process` as well: its target says whose brokers run. The seed would be for disk
        # faults, which Kafka's brokers do not have.
        super().__init__("process", plan, backend, acts=acts, clocks=clocks, cpus=cpus, seed=0)


def kafka_settings(given: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return a plan's settings without those that only Squall's broker knows, and the names of the removed settings.
    Raise PreconditionError for a setting that the runtime itself sets, such as listeners.
    """
    for name in given:
        if name in GIVEN:
            raise PreconditionError(f"setting {name} cannot be given: it follows from where the broker runs")
    ours = tuple(sorted(name for name in given if name.startswith(STRANGE)))
    return {name: value for name, value in given.items() if name not in ours}, ours
