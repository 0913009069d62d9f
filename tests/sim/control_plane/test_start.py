"""A cluster starts: nodes that started first, before there was a controller, serve as early as those that started last.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from squall.workloads.client import admin
from tests.support.brokers.memory_cluster import Load, MemoryCluster, surely, values_of

pytestmark = pytest.mark.gate


@pytest.mark.parametrize("before_s", [0.3, 0.6, 0.9, 1.5])
async def test_a_controller_that_is_found_is_asked_at_once(autojump_clock: Any, before_s: float) -> None:
    async with trio.open_nursery() as nursery:
        cluster = MemoryCluster(nursery)
        await cluster.start(1, ready=False)
        await trio.sleep(before_s)
        await cluster.start(2, 3, ready=False)
        await cluster.until(lambda: any(node.env.events("controller_active") for node in cluster.nodes.values()))
        found = trio.current_time()
        await cluster.until(lambda: len(cluster.running()) == 3)
        assert trio.current_time() - found < 0.1
        nursery.cancel_scope.cancel()


async def test_a_whole_cluster_that_stopped_serves_again_with_all_it_held(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster = MemoryCluster(nursery)
        await cluster.start()
        client = await cluster.client()
        new = admin.NewTopic("t", 1, 3, {"min.insync.replicas": "2"})
        assert await surely(admin.create_topics, client, [new]) == {"t": ""}
        load = Load(cluster, "t")
        nursery.start_soon(load.run, client)
        await cluster.until(lambda: len(load.acknowledged) > 50)
        load.scope.cancel()
        await load.ended.wait()
        for node in cluster.nodes.values():
            node.stop_event.set()
        await cluster.until(lambda: all(node.scope is None for node in cluster.nodes.values()))

        await cluster.start()
        await cluster.until(lambda: getattr(cluster.partition("t"), "leader", -1) >= 0)
        held = values_of(cluster.running()[cluster.partition("t").leader].logs.logs["t", 0])
        assert all(held[offset] == value for value, offset in load.acknowledged.items())
        await cluster.until(lambda: len(cluster.partition("t").isr) == 3)
        nursery.cancel_scope.cancel()
