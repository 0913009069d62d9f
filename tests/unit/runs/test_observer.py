"""Who is asked: a lookout asks each broker for as long as it lives, whatever the brokers say of each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from broker.protocol.apis import ApiKey
from broker.protocol.schema.metadata import MetadataRequest
from chaos.faults.targets import ClusterView
from chaos.runs.observer import Observer
from tests.support.brokers.memory_env import FakeEnv
from tests.support.clusters.fake_cluster import FakeCluster, Withhold
from workloads.client.settings import ClientSettings

LIVED_S = ClientSettings().metadata_max_age_ms / 1000 + 1


@asynccontextmanager
async def looking_at(cluster: FakeCluster) -> AsyncIterator[Callable[[], Awaitable[ClusterView]]]:
    cluster.topic("t", [1, 2, 3])
    addresses = [cluster.address(node) for node in cluster.node_ids]
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
        observer = Observer(FakeEnv(cluster, 1), addresses, cluster.node_ids)
        async with observer.lookout() as view:
            yield view
        nursery.cancel_scope.cancel()


async def test_a_lookout_asks_every_broker_also_after_it_has_learned_of_all(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    async with looking_at(cluster):
        await trio.sleep(LIVED_S)
        before = len(cluster.requests(ApiKey.METADATA))
        await trio.sleep(1)
        asked = {seen.node for seen in cluster.requests(ApiKey.METADATA)[before:]}
    assert asked == {1, 2, 3}


@pytest.mark.parametrize("cut_off", [1, 2, 3])
async def test_a_broker_that_is_cut_off_deceives_no_lookout(cut_off: int, autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    async with looking_at(cluster) as view:
        await trio.sleep(LIVED_S)
        old = cluster.metadata(MetadataRequest(None))
        cluster.script.append(lambda seen: old if seen.api_key == ApiKey.METADATA and seen.node == cut_off else None)
        cluster.move("t", cut_off - 1, cut_off % 3 + 1)
        await trio.sleep(0.5)
        assert (await view()).leaders[f"t-{cut_off - 1}"] == cut_off % 3 + 1


async def test_a_broker_that_was_silent_is_asked_again(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    async with looking_at(cluster):
        cluster.script.append(lambda seen: Withhold() if seen.node == 2 else None)
        await trio.sleep(5)
        cluster.script.clear()
        await trio.sleep(5)
        before = len(cluster.requests(ApiKey.METADATA))
        await trio.sleep(1)
        asked = {seen.node for seen in cluster.requests(ApiKey.METADATA)[before:]}
    assert asked == {1, 2, 3}
