"""Collects the metrics of a node. Their names are those that Prometheus' JMX exporter gives to Kafka's MBeans, so
Kafka's dashboards fit.

Names of metrics that Kafka lacks begin with `squall_`. Counters are 0 when the node starts. Gauges are read at each
scrape.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from squall.broker.metrics.text import MetricFamily, exposition
from squall.broker.net.request_metrics import RequestMetrics
from squall.broker.protocol.apis import APIS
from squall.broker.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from squall.broker.apis.fetch import FetchApi
    from squall.broker.apis.produce import ProduceApi
    from squall.broker.cluster.image import ClusterImage
    from squall.broker.config import BrokerConfig
    from squall.broker.control.port import ControlPlane
    from squall.broker.net.server import Server
    from squall.broker.replicas.coordinators.group_coordinator import GroupCoordinator
    from squall.broker.replicas.coordinators.transaction_coordinator import TransactionCoordinator
    from squall.broker.replicas.fetcher import ReplicaFetcherManager
    from squall.broker.replicas.hosted_partition import HostedPartition
    from squall.broker.replicas.isr_proposals import IsrProposals
    from squall.broker.replicas.replica_manager import ReplicaManager

STARTING, RUNNING, STOPPING = 1, 3, 6
"""Are values of Kafka's BrokerState: STARTING, RUNNING, PENDING_CONTROLLED_SHUTDOWN."""
PARTITIONS_IN_A_TURN = 100
"""Limits the partitions whose metrics are collected before other tasks run. Collecting these takes a millisecond."""
PER_PARTITION = {
    "kafka_log_log_logstartoffset": "The first offset that can be read.",
    "kafka_log_log_logendoffset": "The offset of the next record.",
    "kafka_log_log_size": "Bytes of all segments.",
    "kafka_cluster_partition_highwatermark": "Records below it are committed, as this replica knows.",
    "kafka_cluster_partition_laststableoffset": "Transactions below it are decided, as this replica knows.",
    "kafka_cluster_partition_insyncreplicascount": "In-sync replicas; only from the leader.",
    "kafka_cluster_partition_replicascount": "Replicas that the partition should have; only from the leader.",
}


@dataclass(slots=True)
class NodeMetrics:
    """Collects the metrics of a node from its parts, such as replicas, coordinators and server."""

    config: BrokerConfig
    image: ClusterImage
    control: ControlPlane
    replicas: ReplicaManager
    proposals: IsrProposals
    fetchers: ReplicaFetcherManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    server: Server
    produce: ProduceApi
    fetch: FetchApi
    requests: RequestMetrics
    longest_turn_s: Callable[[], float] | None = None
    """Returns the CPU time, in s, of the longest task step since the node last wrote a report of it to its trace. It is
    None if task steps are not measured.
    """
    state: int = field(default=STARTING)

    async def write(self) -> bytes:
        """Return all metrics as OpenMetrics text. Other tasks run while they are collected, so not all samples are of
        one moment.
        """
        families = [*self._node(), *self._traffic(), *self._requests()]
        await trio.lowlevel.checkpoint()
        families += self._controller()
        families += await self._coordinators()
        families += await self._partitions()
        return exposition(families)

    def _node(self) -> list[MetricFamily]:
        state = MetricFamily("kafka_server_kafkaserver_brokerstate", "gauge", "1: starting, 3: running, 6: stopping.")
        info = MetricFamily("squall_node", "info", "Which node this is.")
        counts = MetricFamily("kafka_server_socket_server_metrics_connection_count", "gauge", "Open connections.")
        for listener, count in self.server.connection_counts().items():
            counts.add(count, listener=listener)
        found = [state.add(self.state), info.add(1, node_id=self.config.node_id), counts]
        if self.longest_turn_s is not None:
            about = "CPU time of the longest turn of the event loop since it was last reported."
            found.append(MetricFamily("squall_longest_turn_seconds", "gauge", about).add(self.longest_turn_s()))
        return found

    def _traffic(self) -> list[MetricFamily]:
        topics, replicas = "kafka_server_brokertopicmetrics_", "kafka_server_replicamanager_"
        counters = (
            (f"{topics}messagesin", "Records appended for producers.", self.produce.messages_in),
            (f"{topics}bytesin", "Bytes of batches appended for producers.", self.produce.bytes_in),
            (f"{topics}bytesout", "Bytes of batches sent to consumers.", self.fetch.bytes_to_consumers),
            (f"{topics}replicationbytesin", "Bytes of batches fetched from leaders.", self.fetchers.bytes_in),
            (f"{topics}replicationbytesout", "Bytes of batches sent to followers.", self.fetch.bytes_to_followers),
            (f"{replicas}isrshrinks", "ISRs that this leader made smaller.", self.proposals.shrinks),
            (f"{replicas}isrexpands", "ISRs that this leader made larger.", self.proposals.expands),
        )
        return [MetricFamily(name, "counter", about).add(value) for name, about, value in counters]

    def _requests(self) -> list[MetricFamily]:
        taken = MetricFamily("kafka_network_requestmetrics_requests", "counter", "Requests.")
        errors = MetricFamily(
            "kafka_network_requestmetrics_errors", "counter", "Errors in responses, one for each part."
        )
        about = "From a request until its response was known, waits for records and replicas included."
        seconds = MetricFamily("kafka_network_requestmetrics_totaltime_seconds", "summary", about)
        of = self.requests
        for key, count in sorted(of.requests.items()):
            taken.add(count, request=_api(key))
        for key, count in sorted(of.responses.items()):
            seconds.add(count, "_count", request=_api(key))
            seconds.add(round(of.seconds[key], 6), "_sum", request=_api(key))
        for (key, code), count in sorted(of.errors.items()):
            errors.add(count, request=_api(key), error=_error(code))
        return [taken, errors, seconds]

    def _controller(self) -> list[MetricFamily]:
        """Return the controller's metrics. As with Kafka, all nodes but the active controller report 0."""
        active = self.control.controller_id == self.config.node_id
        brokers = list(self.image.brokers.values()) if active else []
        partitions = [partition for _, _, partition in self.image.partitions()] if active else []
        fenced = sum(each.fenced for each in brokers)
        gauges = (
            ("activecontrollercount", "1: this node is the active controller.", int(active)),
            ("activebrokercount", "Registered brokers that are not fenced.", len(brokers) - fenced),
            ("fencedbrokercount", "Registered brokers that are fenced.", fenced),
            ("globaltopiccount", "Topics.", len(self.image.topics_by_id) if active else 0),
            ("globalpartitioncount", "Partitions.", len(partitions)),
            ("offlinepartitionscount", "Partitions without a leader.", sum(each.leader < 0 for each in partitions)),
        )
        return [
            MetricFamily(f"kafka_controller_kafkacontroller_{name}", "gauge", text).add(n) for name, text, n in gauges
        ]

    async def _coordinators(self) -> list[MetricFamily]:
        """Return the numbers of groups and transactional ids that this broker coordinates."""
        groups: Counter[str] = Counter(classic=0, consumer=0)
        for shard in list(self.groups.shards.values()):
            groups["classic"] += len(shard.machine.groups)
            groups["consumer"] += len(shard.machine.ledger.consumers)
        states: Counter[str] = Counter()
        # The list is a copy: shards are loaded and unloaded while other tasks run at the checkpoint.
        for hosted in list(self.transactions.shards.values()):
            states.update(each.state.name for each in hosted.machine.transactions.values())
            await trio.lowlevel.checkpoint()
        of_groups = MetricFamily("kafka_server_group_coordinator_metrics_group_count", "gauge", "Groups.")
        for protocol, count in groups.items():
            of_groups.add(count, protocol=protocol)
        of_ids = MetricFamily("squall_transactional_ids", "gauge", "Transactional ids, by their last state.")
        for state, count in sorted(states.items()):
            of_ids.add(count, state=state)
        return [of_groups, of_ids]

    async def _partitions(self) -> list[MetricFamily]:
        """Return the metrics of all replicas together, and of single partitions: at most squall.metrics.max.partitions,
        the first by name.
        """
        hosted = sorted(self.replicas.hosted(), key=lambda h: (h.log.topic, h.log.partition))
        families = {name: MetricFamily(name, "gauge", about) for name, about in PER_PARTITION.items()}
        most = self.config.squall_metrics_max_partitions
        for at, h in enumerate(hosted[:most]):
            _add(families, h)
            if at % PARTITIONS_IN_A_TURN == PARTITIONS_IN_A_TURN - 1:
                await trio.lowlevel.checkpoint()
        return [*_sums(hosted, len(hosted) - most), *families.values()]


def _sums(hosted: list[HostedPartition], left_out: int) -> Iterable[MetricFamily]:
    led = [h.state for h in hosted if h.state.is_leader]
    gauges = (
        ("kafka_server_replicamanager_partitioncount", "Replicas here.", len(hosted)),
        ("kafka_server_replicamanager_leadercount", "Partitions that this broker leads.", len(led)),
        (
            "kafka_server_replicamanager_underreplicatedpartitions",
            "Partitions that it leads with fewer in-sync replicas than replicas.",
            sum(len(state.isr) < len(state.replicas) for state in led),
        ),
        (
            "kafka_server_replicamanager_underminisrpartitioncount",
            "Partitions that it leads with fewer in-sync replicas than min.insync.replicas.",
            sum(len(state.isr) < min(state.settings.min_insync_replicas, len(state.replicas)) for state in led),
        ),
        ("squall_metrics_partitions_left_out", "Replicas without samples of their own.", max(0, left_out)),
    )
    return [MetricFamily(name, "gauge", about).add(value) for name, about, value in gauges]


def _add(families: dict[str, MetricFamily], h: HostedPartition) -> None:
    log, state = h.log, h.state
    values = [
        log.log_start_offset,
        log.log_end_offset,
        log.size,
        state.high_watermark,
        state.last_stable_offset(h.first_unstable_offset()),
        *((len(state.isr), len(state.replicas)) if state.is_leader else ()),
    ]
    # The last two families have samples of leaders only: a follower does not know the ISR.
    for family, value in zip(families.values(), values, strict=False):
        family.add(value, topic=log.topic, partition=log.partition)


def _api(key: int) -> str:
    """Return the name of an API as Kafka writes it: Produce, ListOffsets."""
    return APIS[key].name


def _error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
