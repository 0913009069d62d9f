"""The metadata log is deleted up to its snapshots, and nodes that need older records load a snapshot: whole nodes in
memory.
"""

from __future__ import annotations

from typing import Any

import trio

from squall.workloads.client import admin
from squall.workloads.client.client import Client
from tests.support.brokers.memory_cluster import Load, MemoryCluster, finish, kraft, surely, values_of
from tests.support.disks.memory_fs import MemoryFs

OFTEN = {
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "metadata.max.retention.bytes": "3000",
    "metadata.log.segment.bytes": "4000",
}
FOLDER = "data/__cluster_metadata-0"


async def cluster_of(nursery: trio.Nursery, count: int = 3, **more: Any) -> tuple[MemoryCluster, Client]:
    cluster = MemoryCluster(nursery, count, **more)
    cluster.settings.update(OFTEN)
    await cluster.start()
    return cluster, await cluster.client()


async def make_topics(cluster: MemoryCluster, client: Client, first: int, count: int) -> None:
    for n in range(first, first + count):
        await surely(admin.create_topics, client, [admin.NewTopic(f"topic-{n}", 2, 2)])


def log_start(cluster: MemoryCluster, node_id: int) -> int:
    return kraft(cluster.running()[node_id]).quorum._raft.log.start_offset


def all_agree(cluster: MemoryCluster) -> bool:
    images = [node.feed.image for node in cluster.running().values()]
    return all(image.offset == images[0].offset and image == images[0] for image in images)


async def test_snapshots_are_taken_and_the_log_before_them_goes(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, client = await cluster_of(nursery)
        await make_topics(cluster, client, 0, 30)
        await cluster.until(lambda: all(log_start(cluster, node) > 0 for node in cluster.nodes))
        for node in cluster.nodes.values():
            names = node.fs.list(FOLDER)
            assert [name for name in names if name.endswith(".checkpoint")]
            assert f"{0:020d}.log" not in names, "the oldest segment is gone"
        await cluster.until(lambda: all_agree(cluster))
        nursery.cancel_scope.cancel()


async def test_a_cluster_starts_from_its_snapshots(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, client = await cluster_of(nursery)
        await make_topics(cluster, client, 0, 30)
        await cluster.until(lambda: all(log_start(cluster, node) > 0 for node in cluster.nodes))
        for node_id in cluster.nodes:
            await cluster.kill(node_id, lose_power=True)
        await cluster.start()
        await cluster.until(lambda: all_agree(cluster))
        assert set(cluster.image().topic_ids) == {f"topic-{n}" for n in range(30)}
        for node in cluster.nodes.values():
            assert node.env.events("snapshot_loaded")
        nursery.cancel_scope.cancel()


async def test_a_voter_that_was_away_too_long_fetches_a_snapshot(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, client = await cluster_of(nursery)
        await make_topics(cluster, client, 0, 3)
        controller = cluster.controller()
        assert controller is not None
        away = next(node_id for node_id in cluster.nodes if node_id != controller.config.node_id)
        await cluster.kill(away)
        await make_topics(cluster, client, 3, 30)
        await cluster.start(away)
        assert cluster.nodes[away].env.events("snapshot_installed")
        await cluster.until(lambda: all_agree(cluster))
        nursery.cancel_scope.cancel()


async def test_an_observer_that_begins_late_fetches_a_snapshot_and_serves(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster = MemoryCluster(nursery, 4, voters=3)
        cluster.settings.update(OFTEN)
        await cluster.start(1, 2, 3)
        client = await cluster.client()
        await make_topics(cluster, client, 0, 30)
        await cluster.start(4)
        assert cluster.nodes[4].env.events("snapshot_installed")
        await surely(admin.create_topics, client, [admin.NewTopic("late", 1, 3)])
        load = Load(cluster, "late")
        nursery.start_soon(load.run, client)
        moved = await surely(admin.alter_partition_reassignments, client, {("late", 0): [4, 1]})
        assert moved == {("late", 0): ""}
        await cluster.until(lambda: set(cluster.partition("late").isr) == {1, 4} and len(load.acknowledged) > 50)
        assert len(values_of(cluster.running()[4].logs.logs["late", 0])) > 50 and not load.failed
        await finish(nursery, load)


async def test_a_voter_that_lost_its_disk_is_a_voter_again(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, client = await cluster_of(nursery)
        await make_topics(cluster, client, 0, 30)
        controller = cluster.controller()
        assert controller is not None
        gone = next(node_id for node_id in cluster.nodes if node_id != controller.config.node_id)
        await cluster.kill(gone)
        cluster.nodes[gone].fs = MemoryFs()
        await cluster.start(gone)
        assert cluster.nodes[gone].env.events("snapshot_installed")
        await cluster.until(lambda: all_agree(cluster))
        first = controller.config.node_id
        await cluster.kill(first)
        await cluster.until(lambda: (found := cluster.controller()) is not None and found.config.node_id != first)
        await make_topics(cluster, client, 30, 3)
        assert set(cluster.image().topic_ids) == {f"topic-{n}" for n in range(33)}
        nursery.cancel_scope.cancel()


async def test_what_was_deleted_while_a_broker_was_away_is_deleted_there_too(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, client = await cluster_of(nursery)
        await surely(admin.create_topics, client, [admin.NewTopic("doomed", 1, 3)])
        controller = cluster.controller()
        assert controller is not None
        away = next(node_id for node_id in cluster.nodes if node_id != controller.config.node_id)
        await cluster.until(lambda: "doomed-0" in cluster.folders(away))
        # Cut off, not dead: it follows by a snapshot in the middle of its life.
        cluster.cut(away)
        await surely(admin.delete_topics, client, ["doomed"])
        await make_topics(cluster, client, 0, 30)
        cluster.heal()
        await cluster.until(lambda: bool(cluster.nodes[away].env.events("snapshot_installed")))
        await cluster.until(lambda: "doomed-0" not in cluster.folders(away) and all_agree(cluster))
        nursery.cancel_scope.cancel()
