"""ElectLeaders and reassignments over the wire, with data: four whole nodes in memory under virtual time."""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from squall.workloads.client import admin
from squall.workloads.client.client import Client
from tests.support.brokers.memory_cluster import Load, MemoryCluster, finish, kraft, surely, values_of

TOPIC = "t"
PLACE = (TOPIC, 0)


async def with_topic(
    nursery: trio.Nursery, brokers: int = 3, replicas: int = 3, **settings: str
) -> tuple[MemoryCluster, Client]:
    """A cluster with topic "t", one partition, min ISR 2."""
    cluster = MemoryCluster(nursery, brokers, **settings)
    await cluster.start()
    client = await cluster.client()
    new = admin.NewTopic(TOPIC, 1, replicas, {"min.insync.replicas": "2"})
    assert await admin.create_topics(client, [new]) == {TOPIC: ""}
    await cluster.until(lambda: cluster.partition(TOPIC) is not None)
    return cluster, client


def in_sync(cluster: MemoryCluster, *brokers: int) -> bool:
    partition = cluster.partition(TOPIC)
    return partition is not None and set(partition.isr) == set(brokers)


async def test_a_preferred_leader_that_came_back_leads_again_when_asked(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, client = await with_topic(nursery)
        first = cluster.partition(TOPIC).leader
        await cluster.kill(first)
        await cluster.until(lambda: cluster.controller() is not None and cluster.partition(TOPIC).leader != first)
        assert await surely(admin.elect_leaders, client, [PLACE]) == {PLACE: "PREFERRED_LEADER_NOT_AVAILABLE"}
        await cluster.start(first)
        await cluster.until(lambda: in_sync(cluster, 1, 2, 3))
        assert await surely(admin.elect_leaders, client, None) == {PLACE: ""}
        assert cluster.partition(TOPIC).leader == first
        assert await surely(admin.elect_leaders, client, [PLACE]) == {PLACE: "ELECTION_NOT_NEEDED"}
        unknown = ("nowhere", 5)
        assert await surely(admin.elect_leaders, client, [unknown]) == {unknown: "UNKNOWN_TOPIC_OR_PARTITION"}
        nursery.cancel_scope.cancel()


async def test_an_unclean_election_is_made_when_asked_and_only_then(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        # Broker 5 observes, so that the quorum lives while its partition does not.
        cluster, client = await with_topic(nursery, brokers=5, replicas=2)
        partition = cluster.partition(TOPIC)
        leader = partition.leader
        other = next(replica for replica in partition.replicas if replica != leader)
        await cluster.kill(other)
        await cluster.until(lambda: in_sync(cluster, leader), 120)
        await cluster.kill(leader)
        await cluster.until(lambda: cluster.controller() is not None and cluster.partition(TOPIC).leader == -1, 120)
        await cluster.start(other)
        await trio.sleep(10)
        assert cluster.partition(TOPIC).leader == -1, "nobody is elected who may lack records"
        assert await surely(admin.elect_leaders, client, [PLACE], unclean=True) == {PLACE: ""}
        after = cluster.partition(TOPIC)
        assert (after.leader, after.isr) == (other, (other,))
        nursery.cancel_scope.cancel()


async def test_a_partition_moves_under_load_to_other_brokers_and_leaves_nothing_behind(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, client = await with_topic(nursery, brokers=5)
        before = cluster.partition(TOPIC).replicas
        outside = [broker for broker in cluster.nodes if broker not in before]
        target = [*outside, before[1]]
        load = Load(cluster, TOPIC)
        nursery.start_soon(load.run, client)
        await cluster.until(lambda: len(load.acknowledged) > 100)
        assert await surely(admin.alter_partition_reassignments, client, {PLACE: target}) == {PLACE: ""}
        moving = await surely(admin.list_partition_reassignments, client, [PLACE, ("u", 1)])
        if moving:
            assert moving == {
                PLACE: admin.OngoingReassignment((*target, before[0], before[2]), (*outside,), (before[0], before[2]))
            }
        await cluster.until(lambda: cluster.partition(TOPIC).replicas == tuple(target))
        assert await surely(admin.list_partition_reassignments, client) == {}
        done = len(load.acknowledged)
        await cluster.until(lambda: in_sync(cluster, *target) and len(load.acknowledged) > done + 100)
        folder = f"{TOPIC}-0"
        await cluster.until(lambda: all(folder not in cluster.folders(gone) for gone in (before[0], before[2])))
        assert not load.failed
        for broker_id in target:
            held = values_of(cluster.running()[broker_id].logs.logs[TOPIC, 0])
            acknowledged = {offset: value for value, offset in load.acknowledged.items()}
            # A follower may be behind by what was acknowledged in this very moment.
            assert {offset: value for offset, value in acknowledged.items() if offset in held}.items() <= held.items()
            assert len(held) >= done
        await finish(nursery, load)


async def test_a_move_to_a_dead_broker_waits_and_can_be_called_off(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, client = await with_topic(nursery, brokers=4)
        before = cluster.partition(TOPIC).replicas
        outside = next(broker for broker in cluster.nodes if broker not in before)
        await cluster.kill(outside)
        await cluster.until(lambda: cluster.controller() is not None and cluster.image().brokers[outside].fenced)
        target = [before[0], before[1], outside]
        assert await surely(admin.alter_partition_reassignments, client, {PLACE: target}) == {PLACE: ""}
        expected = admin.OngoingReassignment((*target, before[2]), (outside,), (before[2],))
        assert await surely(admin.list_partition_reassignments, client) == {PLACE: expected}
        await trio.sleep(10)
        assert await surely(admin.list_partition_reassignments, client) == {PLACE: expected}
        assert await surely(admin.alter_partition_reassignments, client, {PLACE: None}) == {PLACE: ""}
        assert set(cluster.partition(TOPIC).replicas) == set(before)
        again = await surely(admin.alter_partition_reassignments, client, {PLACE: None})
        assert again == {PLACE: "NO_REASSIGNMENT_IN_PROGRESS"}
        nursery.cancel_scope.cancel()


async def test_a_broker_that_was_down_while_its_replica_was_taken_away_deletes_it(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, client = await with_topic(nursery, brokers=4)
        before = cluster.partition(TOPIC).replicas
        leader = cluster.partition(TOPIC).leader
        gone = next(replica for replica in before if replica != leader)
        outside = next(broker for broker in cluster.nodes if broker not in before)
        await cluster.kill(gone)
        target = [outside if replica == gone else replica for replica in before]
        await cluster.until(lambda: cluster.controller() is not None)
        assert await surely(admin.alter_partition_reassignments, client, {PLACE: target}) == {PLACE: ""}
        await cluster.until(lambda: in_sync(cluster, *target) and cluster.partition(TOPIC).replicas == tuple(target))
        await cluster.start(gone)
        assert f"{TOPIC}-0" not in cluster.folders(gone)
        nursery.cancel_scope.cancel()


async def test_the_quorum_is_described_by_whichever_broker_is_asked(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster = MemoryCluster(nursery, 4, voters=3)
        await cluster.start()
        controller = cluster.controller()
        assert controller is not None
        for _ in range(4):
            client = await cluster.client()
            view = await surely(admin.describe_quorum, client)
            assert view.leader_id == controller.config.node_id
            assert (sorted(view.voters), sorted(view.observers)) == ([1, 2, 3], [4])
            client.close()
        nursery.cancel_scope.cancel()


async def test_a_feature_is_finalized_at_another_level_for_the_whole_cluster(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, client = await with_topic(nursery)
        feature = "eligible.leader.replicas.version"
        assert await surely(admin.update_features, client, {feature: 1}) == ""
        await cluster.until(lambda: all(n.feed.image.features.get(feature) == 1 for n in cluster.running().values()))
        assert await surely(admin.update_features, client, {feature: 2}) == "INVALID_UPDATE_VERSION"
        assert await surely(admin.update_features, client, {feature: 0}) == ""
        await cluster.until(lambda: all(feature not in n.feed.image.features for n in cluster.running().values()))
        nursery.cancel_scope.cancel()


def has_controller_after(cluster: MemoryCluster, epoch: int) -> bool:
    controller = cluster.controller()
    return controller is not None and kraft(controller).quorum.epoch > epoch


async def test_the_controller_can_be_unseated_alive_and_nothing_committed_is_lost(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, client = await with_topic(nursery)
        inside = await cluster.client(between_nodes=True)
        for turn in range(3):
            epoch = (await surely(admin.unseat_controller, inside)).epoch
            await cluster.until(partial(has_controller_after, cluster, epoch))
            name = f"made-after-turn-{turn}"
            assert await surely(admin.create_topics, client, [admin.NewTopic(name, 1, 3)]) == {name: ""}
        await cluster.until(lambda: cluster.controller() is not None)
        assert {TOPIC, *(f"made-after-turn-{turn}" for turn in range(3))} == set(cluster.image().topic_ids)
        resigned = [event for node in cluster.nodes.values() for event in node.env.events("controller_resigned")]
        assert len(resigned) >= 3
        assert all(node.incarnation == 1 for node in cluster.nodes.values()), "nobody was restarted"
        nursery.cancel_scope.cancel()
