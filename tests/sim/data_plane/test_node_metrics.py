"""The metrics of whole nodes in virtual time, parsed by prometheus-client, agree with what happened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from squall.broker.config import BrokerConfig
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.schema.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from squall.workloads.client import admin
from tests.support.brokers.memory_cluster import Load, MemoryCluster, NodeEnv, RetryingClient, finish, surely
from tests.support.disks.memory_fs import MemoryFs

METRICS_PORT = 9000
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
Samples = dict[tuple[str, tuple[str, ...]], float]


class Scraped(MemoryCluster):
    """A cluster whose nodes serve metrics, at the port `METRICS_PORT` plus node id."""

    def config(self, node_id: int) -> BrokerConfig:
        return super().config(node_id).changed({"squall.metrics.port": str(METRICS_PORT + node_id)})

    async def samples(self, node_id: int) -> Samples:
        """Return the node's samples by (name, label values)."""
        env = NodeEnv(self.network, "scraper", 1, MemoryFs())
        link = await env.connect("h", METRICS_PORT + node_id)
        link.send((REQUEST,))
        text = bytearray()
        view = memoryview(bytearray(1 << 16))
        while (count := link.recv_into(view)) != 0:
            if count is None:
                await link.wait_readable()
            else:
                text += view[:count]
        head, _, body = bytes(text).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK"), head
        families: Any = text_string_to_metric_families(body.decode())
        return {(s.name, tuple(s.labels.values())): s.value for each in families for s in each.samples}


def leader_of(cluster: MemoryCluster) -> int:
    return int(cluster.partition("t").leader)


@asynccontextmanager
async def three_nodes() -> AsyncIterator[Scraped]:
    """Start three nodes with topic "t", whose only partition has a replica on each."""
    async with trio.open_nursery() as nursery:
        made = Scraped(nursery, 3)
        await made.start()
        client = await made.client()
        assert await surely(admin.create_topics, client, [admin.NewTopic("t", 1, 3)]) == {"t": ""}
        await made.until(lambda: made.partition("t") is not None and len(made.partition("t").isr) == 3)
        yield made
        nursery.cancel_scope.cancel()


async def test_records_and_bytes_are_counted_once_where_they_are_produced(autojump_clock: Any) -> None:
    async with three_nodes() as cluster:
        async with trio.open_nursery() as nursery:
            load = Load(cluster, "t")
            client = await cluster.client()
            nursery.start_soon(load.run, client)
            await cluster.until(lambda: len(load.acknowledged) >= 20)
            await finish(nursery, load)
        leader = leader_of(cluster)
        of = {node_id: await cluster.samples(node_id) for node_id in cluster.nodes}
        name = "kafka_server_brokertopicmetrics_messagesin_total"
        messages = {node_id: each[name, ()] for node_id, each in of.items()}
        end = of[leader]["kafka_log_log_logendoffset", ("t", "0")]
        assert end >= 20
        assert messages == {node_id: end if node_id == leader else 0 for node_id in of}
        for offset in ("cluster_partition_highwatermark", "cluster_partition_laststableoffset"):
            assert of[leader][f"kafka_{offset}", ("t", "0")] == end
        size = of[leader]["kafka_server_brokertopicmetrics_bytesin_total", ()]
        assert size == of[leader]["kafka_log_log_size", ("t", "0")]
        followers = [each for node_id, each in of.items() if node_id != leader]
        for follower in followers:
            assert follower["kafka_server_brokertopicmetrics_replicationbytesin_total", ()] == size
        assert of[leader]["kafka_server_brokertopicmetrics_replicationbytesout_total", ()] == 2 * size
        produced = of[leader]["kafka_network_requestmetrics_requests_total", ("Produce",)]
        assert produced == of[leader]["kafka_network_requestmetrics_totaltime_seconds_count", ("Produce",)] > 0
        assert of[leader]["kafka_network_requestmetrics_totaltime_seconds_sum", ("Fetch",)] > 0, "followers wait"


async def test_leaders_controllers_and_brokers_add_up_over_the_nodes(autojump_clock: Any) -> None:
    async with three_nodes() as cluster:
        of = [await cluster.samples(node_id) for node_id in cluster.nodes]

        def total(name: str, *labels: str) -> float:
            return sum(each[name, labels] for each in of)

        assert total("kafka_server_replicamanager_leadercount") == 1
        assert total("kafka_server_replicamanager_partitioncount") == 3
        assert total("kafka_controller_kafkacontroller_activecontrollercount") == 1
        assert total("kafka_controller_kafkacontroller_activebrokercount") == 3
        assert total("kafka_controller_kafkacontroller_globalpartitioncount") == 1
        assert total("kafka_controller_kafkacontroller_offlinepartitionscount") == 0
        assert total("kafka_server_replicamanager_underreplicatedpartitions") == 0
        assert {each["kafka_server_kafkaserver_brokerstate", ()] for each in of} == {3}
        assert all(each["kafka_server_socket_server_metrics_connection_count", ("INTERNAL",)] > 0 for each in of)
        assert not any(name == "squall_longest_turn_seconds" for each in of for name, _ in each), "none is measured"


async def test_a_lost_follower_is_seen_by_its_leader(autojump_clock: Any) -> None:
    async with three_nodes() as cluster:
        leader = leader_of(cluster)
        controller = cluster.controller()
        assert controller is not None
        gone = next(node_id for node_id in cluster.nodes if node_id not in (leader, controller.config.node_id))
        await cluster.kill(gone)
        await cluster.until(lambda: gone not in cluster.partition("t").isr)
        found = await cluster.samples(leader)
        assert found["kafka_server_replicamanager_underreplicatedpartitions", ()] == 1
        assert found["kafka_cluster_partition_insyncreplicascount", ("t", "0")] == 2
        assert found["kafka_cluster_partition_replicascount", ("t", "0")] == 3
        await cluster.start(gone)
        await cluster.until(lambda: cluster.running()[leader].proposals.expands == 1)
        found = await cluster.samples(leader)
        assert found["kafka_server_replicamanager_isrexpands_total", ()] == 1
        assert found["kafka_server_replicamanager_underreplicatedpartitions", ()] == 0


async def test_errors_are_counted_by_api_and_name(autojump_clock: Any) -> None:
    async with three_nodes() as cluster:
        async with trio.open_nursery() as nursery:
            client = RetryingClient(cluster)
            await nursery.start(client.run)
            part = ListOffsetsPartition(partition_index=9, timestamp=-1)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[part])])
            await client.ask(1, ApiKey.LIST_OFFSETS, 5, request)
            nursery.cancel_scope.cancel()
        labels = ("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION")
        assert (await cluster.samples(1))["kafka_network_requestmetrics_errors_total", labels] == 1


async def test_only_so_many_partitions_have_samples_of_their_own(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        made = Scraped(nursery, 1, squall_metrics_max_partitions="3")
        await made.start()
        client = await made.client()
        assert await admin.create_topics(client, [admin.NewTopic("t", 250, 1)]) == {"t": ""}
        await made.until(lambda: made.running()[1].replicas.find(made.image().topic("t").id, 249) is not None)
        found = await made.samples(1)
        assert sum(name == "kafka_log_log_logendoffset" for name, _ in found) == 3
        assert found["squall_metrics_partitions_left_out", ()] == 247
        assert found["kafka_server_replicamanager_partitioncount", ()] == 250
        nursery.cancel_scope.cancel()


async def test_a_node_has_no_endpoint_unless_it_is_asked_for(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        made = MemoryCluster(nursery, 1)
        await made.start()
        assert made.running()[1].metrics is None
        assert sorted(made.network.listeners) == [1001, 2001]
        nursery.cancel_scope.cancel()
