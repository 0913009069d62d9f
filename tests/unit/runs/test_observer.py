"""Checks which broker is asked: a lookout asks each broker for as long as it lives, whatever the brokers say of each
other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.schema.metadata import MetadataRequest
from squall.chaos.faults.targets import ClusterSnapshot
from squall.chaos.runs.observer import ClusterObserver
from squall.workloads.client.settings import ClientSettings
from tests.support.brokers.memory_env import FakeEnv
from tests.support.clusters.fake_cluster import FakeCluster, Withhold

LIVED_S = ClientSettings().metadata_max_age_ms / 1000 + 1


@asynccontextmanager
async def observing(cluster: FakeCluster, known: int = 3) -> AsyncIterator[ClusterObserver]:
    """Run an observer that knows the first `known` brokers."""
    cluster.topic("t", [1, 2, 3])
    addresses = [cluster.address(node) for node in cluster.node_ids][:known]
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
        yield ClusterObserver(FakeEnv(cluster, 1), addresses, cluster.node_ids)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def looking_at(cluster: FakeCluster, known: int = 3) -> AsyncIterator[Callable[[], Awaitable[ClusterSnapshot]]]:
    async with observing(cluster, known) as observer, observer.lookout() as view:
        yield view


async def asked_within(cluster: FakeCluster, seconds: float) -> set[int]:
    """Return the nodes that are asked for metadata within the next seconds."""
    before = len(cluster.requests(ApiKey.METADATA))
    await trio.sleep(seconds)
    return {seen.node for seen in cluster.requests(ApiKey.METADATA)[before:]}


async def test_a_lookout_asks_every_broker_also_after_it_has_learned_of_all(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    async with looking_at(cluster):
        await trio.sleep(LIVED_S)
        assert await asked_within(cluster, 1) == {1, 2, 3}


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
        await trio.sleep(LIVED_S)
        cluster.script.append(lambda seen: Withhold() if seen.node == 2 else None)
        await trio.sleep(5)
        cluster.script.clear()
        await trio.sleep(5)
        assert await asked_within(cluster, 1) == {1, 2, 3}


async def test_of_a_single_bootstrap_server_the_others_are_learned(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    async with looking_at(cluster, known=1) as view:
        await trio.sleep(LIVED_S)
        cluster.script.append(lambda seen: Withhold() if seen.node == 1 else None)
        cluster.move("t", 0, 2)
        await trio.sleep(10)
        with trio.fail_after(10):
            assert (await view()).leaders["t-0"] == 2


async def test_who_keeps_what_was_polled_asks_every_broker_to_the_end(autojump_clock: MockClock) -> None:
    cluster = FakeCluster()
    async with observing(cluster) as observer, trio.open_nursery() as nursery:
        nursery.start_soon(observer.keep_polled, trio.current_time, lambda _: None)
        await trio.sleep(LIVED_S)
        assert await asked_within(cluster, 3) == {1, 2, 3}
        nursery.cancel_scope.cancel()
