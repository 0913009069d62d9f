"""A client's connections and metadata, when brokers hang, lie, move or vanish."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.schema.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from squall.broker.protocol.schema.metadata import MetadataRequest
from squall.workloads.client.client import AnotherCluster, Client
from squall.workloads.client.connection import RequestFailed
from squall.workloads.client.settings import ClientSettings
from tests.support.brokers.memory_env import FakeEnv
from tests.support.clusters.fake_cluster import Break, FakeCluster, Withhold

SETTINGS = ClientSettings(request_timeout_ms=5000, control_timeout_ms=1000, connect_timeout_ms=1000)


@asynccontextmanager
async def running(cluster: FakeCluster, **how: Any) -> AsyncIterator[Client]:
    cluster.topic("t", [1, 2, 3])
    async with cluster.client(SETTINGS, **how) as client:
        client.track(["t"])
        yield client


async def led_by(client: Client, index: int, node: int, limit_s: float = 30) -> float:
    """Return how long, in seconds, it took until the client knew."""
    began = trio.current_time()
    with trio.fail_after(limit_s):
        while (leader := client.view.leader("t", index)) is None or leader.node_id != node:
            client.refresh_soon()
            await trio.sleep(0.01)
    return trio.current_time() - began


async def test_one_bootstrap_server_that_answers_is_enough(clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.stop(1)
    cluster.stop(2)
    async with running(cluster) as client:
        assert await led_by(client, 2, 3) < 3


@pytest.mark.parametrize("seed", range(6))
async def test_a_broker_that_hangs_delays_metadata_by_its_time_out_only(seed: int, clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.script.append(lambda seen: Withhold() if seen.node == 1 else None)
    async with running(cluster, seed=seed) as client:
        assert await led_by(client, 2, 3) < 2.5


@pytest.mark.parametrize("seed", range(6))
async def test_a_broker_that_is_cut_off_and_keeps_telling_old_news_is_not_all_we_ask(
    seed: int, clock: MockClock
) -> None:
    cluster = FakeCluster()
    async with running(cluster, seed=seed) as client:
        await led_by(client, 0, 1)
        old = cluster.metadata(MetadataRequest(None))
        cluster.script.append(lambda seen: old if seen.api_key == ApiKey.METADATA and seen.node == 1 else None)
        cluster.move("t", 0, 2)
        assert await led_by(client, 0, 2) < 2


async def test_after_all_known_nodes_are_gone_the_bootstrap_servers_are_asked_again(clock: MockClock) -> None:
    cluster = FakeCluster(4)
    cluster.stop(4)
    async with running(cluster, bootstrap=[1, 4]) as client:
        await led_by(client, 1, 2)
        for node in (1, 2, 3):
            cluster.stop(node)
        cluster.start(4)
        cluster.move("t", 1, 4)
        assert await led_by(client, 1, 4) < 10


async def test_metadata_is_asked_for_no_more_often_than_the_back_off_allows(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with running(cluster) as client:
        await led_by(client, 0, 1)
        before = len(cluster.requests(ApiKey.METADATA))
        for _ in range(1000):
            client.refresh_soon()
            await trio.sleep(0.001)
        assert len(cluster.requests(ApiKey.METADATA)) - before <= 14


async def test_metadata_is_renewed_by_age_alone(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with running(cluster):
        await trio.sleep(100)
        assert 3 <= len(cluster.requests(ApiKey.METADATA)) <= 6


async def test_a_node_that_refuses_is_tried_again_with_growing_pauses(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with running(cluster) as client:
        await led_by(client, 0, 1)
        cluster.refusing.add(2)
        before = cluster.connects.count(2)
        for _ in range(300):
            assert client.connection(2) is None
            await trio.sleep(0.01)
        # 50, 100, 200, 400, 800 ms and then a second; some of them by the search for metadata.
        assert 4 <= cluster.connects.count(2) - before <= 20


async def test_a_node_at_a_new_address_is_dialled_there(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with running(cluster) as client:
        await led_by(client, 0, 1)
        first = await connected(client, 1)
        client.view.nodes[1] = ("node-3", 9092)
        assert client.connection(1) is None and first.closed  # type: ignore[attr-defined]
        again = await connected(client, 1)
        assert again.peer == "node-3:9092"  # type: ignore[attr-defined]


async def connected(client: Client, node: int) -> object:
    with trio.fail_after(10):
        while (connection := client.connection(node)) is None:
            await trio.sleep(0.01)
    return connection


async def test_connections_to_departed_nodes_are_closed(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with running(cluster) as client:
        await led_by(client, 0, 1)
        gone = await connected(client, 2)
        cluster.down.add(2)
        await client.refreshed()
        assert gone.closed  # type: ignore[attr-defined]


async def test_asking_goes_on_until_somebody_answers(clock: MockClock) -> None:
    cluster = FakeCluster()
    left = [Break(), Break(), Withhold(), DescribeClusterResponse(cluster_id="found")]
    cluster.script.append(lambda seen: left.pop(0) if seen.api_key == ApiKey.DESCRIBE_CLUSTER else None)
    async with running(cluster) as client:
        answer = await client.ask(DescribeClusterRequest(), DescribeClusterResponse)
        assert answer.cluster_id == "found"


async def test_asking_a_node_without_address_fails_at_once_and_unsent(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with running(cluster) as client:
        await led_by(client, 0, 1)
        with pytest.raises(RequestFailed) as caught:
            await client.ask_node(77, DescribeClusterRequest(), DescribeClusterResponse)
        assert not caught.value.sent


async def test_asking_a_node_that_never_connects_ends_in_time(clock: MockClock) -> None:
    cluster = FakeCluster()
    async with running(cluster) as client:
        await led_by(client, 0, 1)
        cluster.stop(2)
        client.view.nodes[2] = cluster.address(2)
        began = trio.current_time()
        with pytest.raises(RequestFailed):
            await client.ask_node(2, DescribeClusterRequest(), DescribeClusterResponse)
        assert trio.current_time() - began <= 5.5


@pytest.mark.parametrize("expected", ["fake", ""])
async def test_a_broker_of_another_cluster_is_told_from_the_expected_one(expected: str, clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.topic("t", [1, 2, 3])
    with pytest.raises(ExceptionGroup) as told:
        async with cluster.client(SETTINGS, cluster_id=expected) as client:
            client.track(["t"])
            await led_by(client, 0, 1)
            cluster.cluster_id = "somebody else's"
            await client.refreshed()
    assert told.group_contains(
        AnotherCluster, match="^node-[123]:9092 is a broker of the cluster somebody else's, and fake was expected there"
    )


async def test_brokers_that_tell_no_id_are_believed(clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.topic("t", [1, 2, 3])
    cluster.cluster_id = None
    async with cluster.client(SETTINGS, cluster_id="known") as client:
        client.track(["t"])
        await led_by(client, 0, 1)


async def test_closing_ends_every_task(clock: MockClock) -> None:
    cluster = FakeCluster()
    cluster.topic("t", [1, 2, 3])
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
        async with trio.open_nursery() as clients:
            client = Client(FakeEnv(cluster), cluster.bootstrap, SETTINGS)
            await clients.start(client.run)
            client.track(["t"])
            await led_by(client, 0, 1)
            await connected(client, 1)
            client.close()
        nursery.cancel_scope.cancel()
