"""How long after `kill -9` of a partition's leader the next acknowledgement comes.

The two cases are told apart, for they differ by seconds: a leader that is the active controller as well leaves a
cluster without one, and whoever succeeds it gives every broker a fresh session before it fences the dead one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import trio
from confluent_kafka.admin import AdminClient, NewTopic

from bench.client import new_producer
from bench.clusters import NODES, Cluster
from broker.protocol.errors import MalformedFrame
from broker.real_env import RealEnv
from workloads.client import admin
from workloads.client.client import Client
from workloads.client.connection import RequestFailed, UnsupportedApi

RATE = 500
PATIENCE_S = 60.0


def failover(cluster: Cluster, *, controller: bool) -> tuple[float, int]:
    """`kill -9` of a leader under 500 records/s: (seconds to the next acknowledgement, records failed).

    `controller`: whether that leader is to be the active controller too. On return the node is back and in sync.
    """
    active = active_controller(cluster)
    victim = active if controller else next(node for node in NODES if node != active)
    topic = f"f{time.monotonic_ns()}"
    _led_by(cluster, topic, victim)
    acks: list[float] = []
    failed: list[Any] = []
    producer = new_producer(cluster.bootstrap, idempotent=True)

    def done(error: Any, _: Any) -> None:
        failed.append(error) if error else acks.append(time.monotonic())

    begin = time.monotonic()
    killed = math.inf
    for n in range(int(PATIENCE_S) * RATE):
        due = begin + n / RATE
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)
        producer.produce(topic, b"x" * 100, partition=0, on_delivery=done)
        if killed == math.inf and due > begin + 2:
            killed = time.monotonic()
            cluster.kill(victim)
        # Some that were acknowledged before are told only now.
        if acks and acks[-1] > killed + 0.05:
            break
    producer.flush(PATIENCE_S)
    cluster.launch(victim)
    _wait_in_sync(cluster, topic)
    later = [t for t in acks if t > killed]
    if not later:
        raise RuntimeError(f"nothing was acknowledged within {PATIENCE_S:g} s of the kill")
    return max(b - a for a, b in zip([killed, *later], later, strict=False)), len(failed)


def active_controller(cluster: Cluster) -> int:
    """The node that leads the metadata quorum. Metadata tells clients of Kafka about any broker instead (KIP-590)."""

    async def ask() -> int:
        env = RealEnv("bench")
        addresses = [("127.0.0.1", port) for port in cluster.ports.values()]
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                client = Client(env, addresses)
                await nursery.start(client.run)
                while True:
                    try:
                        leader = (await admin.describe_quorum(client)).leader_id
                    except (RequestFailed, UnsupportedApi, MalformedFrame):
                        leader = -1
                    if leader in NODES:
                        nursery.cancel_scope.cancel()
                        return leader
                    await trio.sleep(0.1)

    return trio.run(ask)


def _led_by(cluster: Cluster, topic: str, leader: int) -> None:
    """Create a topic of one partition, and wait until the node that is to lead it does."""
    replicas = [leader, *(node for node in NODES if node != leader)]
    asked = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    asked.create_topics([NewTopic(topic, 1, replica_assignment=[replicas])])[topic].result()
    _wait(cluster, topic, lambda partition: partition.leader == leader)


def _wait_in_sync(cluster: Cluster, topic: str) -> None:
    _wait(cluster, topic, lambda partition: len(partition.isrs) == len(NODES))


def _wait(cluster: Cluster, topic: str, holds: Callable[[Any], bool]) -> None:
    asked = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = asked.list_topics(topic, timeout=10).topics[topic]
        if 0 in found.partitions and holds(found.partitions[0]):
            return
        time.sleep(0.1)
    raise RuntimeError(f"{topic} is not as it should be after {PATIENCE_S:g} s")
