"""Controlled shutdown of a broker under load: leadership moves first, and no client waits for a time-out."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from squall.workloads.client import admin
from tests.support.brokers.memory_cluster import Load, MemoryCluster, finish, kraft, surely, values_of

PARTITIONS = 6
TOPIC = "t"
LONGEST_S = 1.0
"""The longest permitted wait of a send: far below any request time-out, far above the round trips of a leader change.
"""


async def under_load(nursery: trio.Nursery, **settings: str) -> tuple[MemoryCluster, list[Load]]:
    """Start three brokers with six partitions, and for each partition a producer that writes every 5 ms."""
    cluster = MemoryCluster(nursery, **settings)
    await cluster.start()
    client = await cluster.client()
    new = admin.NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
    assert await surely(admin.create_topics, client, [new]) == {TOPIC: ""}
    loads = [Load(cluster, TOPIC, index, every_s=0.005) for index in range(PARTITIONS)]
    for load in loads:
        nursery.start_soon(load.run, client)
    await cluster.until(lambda: all(len(load.acknowledged) > 50 for load in loads))
    return cluster, loads


def begin_anew(loads: list[Load]) -> None:
    for load in loads:
        load.slowest_s = 0.0


async def goes_on(cluster: MemoryCluster, loads: list[Load]) -> None:
    """Wait until 50 more records of every partition are acknowledged."""
    counts = [len(load.acknowledged) for load in loads]
    await cluster.until(lambda: all(len(load.acknowledged) > n + 50 for load, n in zip(loads, counts, strict=True)))


def check(cluster: MemoryCluster, loads: list[Load]) -> None:
    """Assert that every acknowledged record is in its log exactly once, that no send failed, and that none took long.
    """
    for load in loads:
        assert load.failed == []
        assert load.slowest_s < LONGEST_S, f"partition {load.index}: {load.slowest_s} s"
        leader = cluster.partition(TOPIC, load.index).leader
        held = values_of(cluster.running()[leader].logs.logs[TOPIC, load.index])
        assert all(held[offset] == value for value, offset in load.acknowledged.items())
        assert len(set(held.values())) == len(held), "a record is there twice"


@pytest.mark.parametrize("controller_too", [False, True], ids=["a broker", "the controller"])
async def test_no_record_is_lost_or_waits_when_its_leader_stops(autojump_clock: Any, controller_too: bool) -> None:
    async with trio.open_nursery() as nursery:
        cluster, loads = await under_load(nursery)
        active = cluster.controller()
        assert active is not None
        stopped = next(n for n in cluster.nodes if (n == active.config.node_id) is controller_too)
        led = [index for index in range(PARTITIONS) if cluster.partition(TOPIC, index).leader == stopped]
        assert led, "it leads something"
        begin_anew(loads)
        await cluster.stop(stopped)
        assert cluster.nodes[stopped].env.events("node_stopped") == [{"controlled": True}]
        await cluster.until(lambda: cluster.controller() is not None)
        await goes_on(cluster, loads)
        check(cluster, loads)
        assert all(cluster.partition(TOPIC, index).leader != stopped for index in led)
        await finish(nursery, *loads)


async def test_a_rolling_restart_under_load_loses_nothing_and_every_stop_is_clean(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, loads = await under_load(nursery)
        begin_anew(loads)
        for node_id in cluster.nodes:
            epoch = cluster.running()[node_id].control.broker_epoch
            await cluster.stop(node_id)
            await cluster.start(node_id)
            assert cluster.running()[node_id].logs.previous_broker_epoch == epoch
            await cluster.until(lambda: cluster.controller() is not None)
            await cluster.until(lambda: all(len(cluster.partition(TOPIC, n).isr) == 3 for n in range(PARTITIONS)))
            await goes_on(cluster, loads)
        check(cluster, loads)
        await finish(nursery, *loads)


async def test_the_leaderships_are_gone_before_the_broker_is(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, loads = await under_load(nursery)
        active = cluster.controller()
        assert active is not None
        stopped = next(n for n in cluster.nodes if n != active.config.node_id)
        node = cluster.running()[stopped]
        node_stop = cluster.nodes[stopped].stop_event
        node_stop.set()
        lifecycle = kraft(node).lifecycle
        assert lifecycle is not None
        await lifecycle.may_stop.wait()
        hosted = node.replicas.hosted()
        assert not [h for h in hosted if h.state.is_leader]
        assert not [h for h in hosted if h.uncommitted], "whoever waited was told who leads now"
        assert all(stopped not in cluster.partition(TOPIC, n).isr for n in range(PARTITIONS))
        await cluster.until(lambda: cluster.nodes[stopped].scope is None)
        await finish(nursery, *loads)


@pytest.mark.parametrize("first", [1, 2, 3])
@pytest.mark.parametrize("apart_s", [0.0, 0.05])
async def test_where_all_stop_at_once_each_is_let_go(autojump_clock: Any, first: int, apart_s: float) -> None:
    async with trio.open_nursery() as nursery:
        cluster = MemoryCluster(nursery)
        await cluster.start()
        assert await surely(admin.create_topics, await cluster.client(), [admin.NewTopic(TOPIC, PARTITIONS, 3, {})])
        asked = trio.current_time()
        for node_id in sorted(cluster.nodes, key=lambda node_id: (node_id - first) % 3):
            cluster.nodes[node_id].stop_event.set()
            await trio.sleep(apart_s)
        await cluster.until(lambda: all(node.scope is None for node in cluster.nodes.values()))
        assert trio.current_time() - asked < 3 * apart_s + LONGEST_S
        assert [node.env.events("node_stopped") for node in cluster.nodes.values()] == 3 * [[{"controlled": True}]]
        nursery.cancel_scope.cancel()


async def test_a_broker_that_stops_alone_waits_for_nobody(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster = MemoryCluster(nursery)
        await cluster.start()
        for node_id in (1, 2):
            asked = trio.current_time()
            await cluster.stop(node_id)
            assert cluster.nodes[node_id].env.events("node_stopped") == [{"controlled": True}]
            assert trio.current_time() - asked < LONGEST_S, "also where the majority ends with it"
            await cluster.until(lambda: cluster.controller() is not None or len(cluster.running()) == 1)
        nursery.cancel_scope.cancel()
