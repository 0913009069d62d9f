"""An executor's client ends after its users, in whatever moment it is cancelled."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from squall.workloads.client.client import Client
from squall.workloads.client.settings import ClientSettings, ConsumerSettings
from squall.workloads.control import LoadHandle
from squall.workloads.libraries import ClientZone
from squall.workloads.load.executor import LoadEnvironment
from tests.support.brokers.memory_env import FakeEnv
from tests.support.clusters.fake_cluster import FakeCluster

LIMIT_S = 60


def environment(cluster: FakeCluster) -> LoadEnvironment:
    env: Any = FakeEnv(cluster, 1)
    nothing: Any = None
    zone = ClientZone("", [cluster.address(node) for node in cluster.node_ids])
    kills = LoadHandle("load 0")
    return LoadEnvironment(env, zone, nothing, ClientSettings(), ConsumerSettings(), 0, kills, trio.Event())


async def test_a_client_that_is_cancelled_as_it_starts_ends(clock: MockClock) -> None:
    async def use(client: Client) -> None:
        raise AssertionError("it was cancelled before")

    with trio.fail_after(LIMIT_S), trio.CancelScope() as scope:
        scope.cancel()
        await environment(FakeCluster()).with_client(use)
    assert scope.cancelled_caught


async def test_a_client_can_still_connect_while_its_user_is_being_cancelled(clock: MockClock) -> None:
    cluster, asked = FakeCluster(), list[int]()
    cluster.topic("orders", [1])

    async def use(client: Client) -> None:
        client.track(["orders"])
        await client.refreshed()
        try:
            await trio.sleep_forever()
        finally:
            # No checkpoint passes here, as in a task that was woken just before.
            asked.extend(node for node in cluster.node_ids if client.connection(node) is None)

    with trio.fail_after(LIMIT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.run)
            with trio.move_on_after(1):
                await environment(cluster).with_client(use)
            nursery.cancel_scope.cancel()
    assert asked == cluster.node_ids
