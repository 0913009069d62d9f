"""The last in-sync replica loses power and its unsynced records. With eligible leader replicas (KIP-966) no
acknowledged record is lost, without them some are.
"""

from __future__ import annotations

from typing import Any

import trio

from squall.broker.cluster.image import RECOVERING
from squall.broker.protocol.ids import NO_NODE
from squall.workloads.client import admin
from tests.support.brokers.memory_cluster import Load, MemoryCluster, finish, surely, values_of

TOPIC = "t"
ELR, NO_ELR = "", "eligible.leader.replicas.version=0"
"""Feature levels of a new cluster: the default, with eligible leader replicas, and without them."""


async def last_one_standing(nursery: trio.Nursery, features: str) -> tuple[MemoryCluster, Load, list[int]]:
    """Stop two of three replicas cleanly, one after the other. Then the third, alone in the ISR, loses power and
    restarts.
    """
    cluster = MemoryCluster(nursery, 6, voters=3, squall_bootstrap_features=features, min_insync_replicas="2")
    await cluster.start()
    client = await cluster.client()
    await surely(admin.create_topics, client, [admin.NewTopic(TOPIC, 1, 3)])
    a, b, c = replicas = (4, 5, 6)  # not those that vote
    await surely(admin.alter_partition_reassignments, client, {(TOPIC, 0): replicas})
    await cluster.until(lambda: cluster.partition(TOPIC).replicas == replicas)
    load = Load(cluster, TOPIC)
    nursery.start_soon(load.run, client)
    await cluster.until(lambda: len(load.acknowledged) > 100)
    await cluster.stop(c)
    await cluster.until(lambda: len(load.acknowledged) > 200)
    await cluster.stop(b)
    await cluster.until(lambda: cluster.partition(TOPIC).isr == (a,))
    await trio.sleep(1)
    await cluster.kill(a, lose_power=True)
    await cluster.until(lambda: cluster.partition(TOPIC).leader == NO_NODE)
    await cluster.start(a)
    return cluster, load, [a, b, c]


def lost(cluster: MemoryCluster, load: Load, leader: int) -> dict[bytes, int]:
    """Return the acknowledged records (value to offset) that the leader's log does not have at their offset."""
    held = values_of(cluster.running()[leader].logs.logs[TOPIC, 0])
    return {value: offset for value, offset in load.acknowledged.items() if held.get(offset) != value}


async def test_the_last_isr_member_that_lost_its_cache_gives_way_to_an_eligible_one(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, load, (a, b, _) = await last_one_standing(nursery, ELR)
        partition = cluster.partition(TOPIC)
        assert (partition.leader, partition.isr, partition.elr) == (NO_NODE, (), (b,))
        assert partition.last_known_elr == (a,)
        await cluster.start(b)
        await cluster.until(lambda: cluster.partition(TOPIC).leader == b)
        assert cluster.partition(TOPIC).leader_recovery_state != RECOVERING
        assert lost(cluster, load, b) == {}
        done = len(load.acknowledged)
        await cluster.until(lambda: set(cluster.partition(TOPIC).isr) == {a, b} and len(load.acknowledged) > done)
        assert lost(cluster, load, b) == {} and not load.failed
        await finish(nursery, load)


async def test_without_eligible_replicas_it_leads_again_and_what_it_lost_is_lost(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, load, (a, *_) = await last_one_standing(nursery, NO_ELR)
        await cluster.until(lambda: cluster.partition(TOPIC).leader == a)
        assert lost(cluster, load, a), "this is the loss that KIP-966 is for"
        await finish(nursery, load)


async def test_where_all_eligible_ones_lost_their_cache_the_last_leader_leads_and_says_so(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster, load, (a, b, _) = await last_one_standing(nursery, ELR)
        cluster.nodes[b].fs.remove("data/.kafka_cleanshutdown")
        await cluster.start(b)
        await cluster.until(lambda: cluster.partition(TOPIC).leader == a)
        partition = cluster.partition(TOPIC)
        assert (partition.elr, partition.last_known_elr) == ((), ())
        events = cluster.nodes[cluster.controller().config.node_id].env.events("leader_elected")  # type: ignore[union-attr]
        assert [event["unclean"] for event in events if event["leader"] == a][-1]
        await finish(nursery, load)


async def test_a_broker_that_stopped_cleanly_is_known_by_the_epoch_in_its_marker(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        cluster = MemoryCluster(nursery, 3)
        await cluster.start()
        epoch = cluster.image().brokers[2].epoch
        await cluster.stop(2)
        await cluster.start(2)
        assert cluster.running()[2].logs.previous_broker_epoch == epoch
        await cluster.kill(2)
        await cluster.start(2)
        assert cluster.running()[2].logs.previous_broker_epoch == -1
        nursery.cancel_scope.cancel()
