"""A leader is killed while a producer writes to it: how long until another one is elected, and until it acknowledges.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from squall.workloads.client import admin
from tests.support.brokers.memory_cluster import Load, MemoryCluster, finish, surely

pytestmark = pytest.mark.gate

TOPIC = "t"
SESSION_S = 9.0
AS_KAFKA = {"broker_session_timeout_ms": "9000", "broker_heartbeat_interval_ms": "2000"}


async def failover(
    nursery: trio.Nursery, *, controller: bool, after_s: float, **settings: str
) -> tuple[float, float, int]:
    """Kill the leader. Returns (seconds until another leader is elected, seconds from there to the next
    acknowledgement, number of failed records).
    """
    cluster = MemoryCluster(nursery, **AS_KAFKA, **settings)
    await cluster.start()
    client = await cluster.client()
    active = cluster.controller()
    assert active is not None
    victim = next(n for n in cluster.nodes if (n == active.config.node_id) is controller)
    new = admin.NewTopic(TOPIC, 6, 3, {"min.insync.replicas": "2"})
    assert await surely(admin.create_topics, client, [new]) == {TOPIC: ""}
    load = Load(cluster, TOPIC, next(n for n in range(6) if cluster.partition(TOPIC, n).leader == victim))
    nursery.start_soon(load.run, client)
    await cluster.until(lambda: len(load.acknowledged) > 50)
    await trio.sleep(after_s)

    await cluster.kill(victim)
    killed, told = trio.current_time(), len(load.acknowledged)
    await cluster.until(lambda: getattr(cluster.partition(TOPIC, load.index), "leader", victim) not in (victim, -1))
    elected = trio.current_time()
    # What the dead leader had acknowledged may have been on its way.
    await cluster.until(lambda: len(load.acknowledged) > told + 5)
    acknowledged = trio.current_time()
    await finish(nursery, load)
    return elected - killed, acknowledged - elected, len(load.failed)


@pytest.mark.parametrize("after_s", [0.0, 0.7, 1.9])
@pytest.mark.parametrize("controller", [False, True], ids=["a broker", "the controller"])
async def test_another_leads_when_the_session_ends(autojump_clock: Any, controller: bool, after_s: float) -> None:
    async with trio.open_nursery() as nursery:
        elected_s, acknowledged_s, failed = await failover(nursery, controller=controller, after_s=after_s)
    assert elected_s <= SESSION_S + 0.1
    assert acknowledged_s <= 0.3
    assert not failed


async def test_as_with_kafka_the_controllers_session_begins_anew_with_its_successor(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        setting = {"squall_controller_inherited_session": "false"}
        elected_s, _, _ = await failover(nursery, controller=True, after_s=0.0, **setting)
    assert elected_s > SESSION_S + 1.4, "the quorum waits for its leader's fetches first"
