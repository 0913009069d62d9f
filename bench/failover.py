"""Measures how long after `kill -9` of a partition's leader the next acknowledgement comes, and which steps take the
time.

Two cases are measured apart, because they differ by seconds: a leader that is the active controller too leaves the
cluster without a controller. The surviving brokers are asked for the steps (`observer`): another controller, if the
dead node was the controller; the dead node fenced; another leader. The remaining time is the client's, measured for
librdkafka and for Squall's own client.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import trio
from confluent_kafka.admin import AdminClient, NewTopic

from bench.client import new_producer
from bench.clusters import NODES, MeasuredCluster
from bench.observer import FailoverObserver
from squall.broker.protocol.errors import MalformedFrame
from squall.broker.real_env import RealEnv
from squall.workloads.client import admin
from squall.workloads.client.client import Client
from squall.workloads.client.connection import RequestFailed, UnsupportedApi

RATE = 500
PATIENCE_S = 60.0
KINDS = {False: "failover of leader", True: "failover of leader and controller"}
ELECTED = "s to another leader"


def failover(cluster: MeasuredCluster, *, controller: bool) -> Mapping[str, float]:
    """Kill the leader of a partition while 500 records/s are produced to it. Returns figures by name: the seconds from
    the kill to another controller, to the fencing of the killed node, to another leader and to the next
    acknowledgement; the seconds from the new leader to that acknowledgement; the number of failed records.

    `controller`: whether that leader must be the active controller, too; otherwise it is another node. On return the
    node runs again and is in sync. Raises RuntimeError if a client gets no acknowledgement, or if the node is not in
    sync again, within `PATIENCE_S`.
    """
    active = active_controller(cluster)
    victim = active if controller else next(node for node in NODES if node != active)
    topic = f"f{time.monotonic_ns()}"
    _create_topic_led_by(cluster, topic, victim)
    brokers = {node: ("127.0.0.1", port) for node, port in cluster.ports.items()}
    survivors = [address for node, address in brokers.items() if node != victim]
    observer = FailoverObserver(list(brokers.values()), survivors, topic, victim)
    observer.start()
    try:
        if not observer.ready.wait(PATIENCE_S):
            raise RuntimeError(f"our client was acknowledged nothing within {PATIENCE_S:g} s")
        killed, acks, failed = _load(cluster, topic, victim, observer)
    finally:
        observer.finish()
        cluster.launch(victim)
    _wait_in_sync(cluster, topic)
    return steps(killed, observer, acks, failed, controller=controller)


def _load(
    cluster: MeasuredCluster, topic: str, victim: int, observer: FailoverObserver
) -> tuple[float, list[float], int]:
    """Produce with librdkafka, and kill `victim` after 2 s. Continue until librdkafka and Squall's own client
    (`observer`) both get acknowledgements again, for at most `PATIENCE_S` in all.

    Returns the time of the kill, the times of librdkafka's acknowledgements, both by `time.monotonic()`, and the number
    of librdkafka's failed records.
    """
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
        # Acknowledgements from before the kill may be reported late.
        if all(found and found[-1] > killed + 0.05 for found in (acks, observer.acknowledged)):
            break
    producer.flush(PATIENCE_S)
    return killed, acks, len(failed)


def steps(
    killed: float, observer: FailoverObserver, acks: Sequence[float], failed: int, *, controller: bool
) -> Mapping[str, float]:
    """Return the figures of one failover by name: the seconds from the kill to each step (another controller, the
    fencing of the killed node, another leader, the next acknowledgement), and the number of failed records.

    `killed` is the time of the kill. `acks` and `failed` are the acknowledgement times and the failed records of
    librdkafka; `observer` has those of Squall's client. `controller`: whether the killed node was the active
    controller. Raises RuntimeError if a client got no acknowledgement after the kill.
    """
    seen = {step: at - killed for step, at in observer.steps.items()}
    found: dict[str, float] = {}
    if controller and "controller" in seen:
        found["s to another controller"] = seen["controller"]
    if "fenced" in seen:
        found["s until it is fenced"] = seen["fenced"]
    if "leader" in seen:
        found[ELECTED] = seen["leader"]
    for client, told in (("", acks), ("our client, ", observer.acknowledged)):
        later = [killed, *(at for at in told if at > killed)]
        if len(later) == 1:
            raise RuntimeError(f"{client}nothing was acknowledged within {PATIENCE_S:g} s of the kill")
        _, at = max((after - before, after - killed) for before, after in pairwise(later))
        found[f"{client}s to next ack"] = at
        if "leader" in seen:
            found[f"{client}s from leader to ack"] = at - seen["leader"]
    return {**found, "records failed": failed + observer.failed}


def active_controller(cluster: MeasuredCluster) -> int:
    """Return the leader of the metadata quorum. DescribeQuorum is used, because Metadata names any broker as the
    controller to clients (KIP-590).
    """

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


def _create_topic_led_by(cluster: MeasuredCluster, topic: str, leader: int) -> None:
    """Create a topic of one partition, and wait until `leader` leads it."""
    replicas = [leader, *(node for node in NODES if node != leader)]
    asked = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    asked.create_topics([NewTopic(topic, 1, replica_assignment=[replicas])])[topic].result()
    _wait(cluster, topic, lambda partition: partition.leader == leader)


def _wait_in_sync(cluster: MeasuredCluster, topic: str) -> None:
    _wait(cluster, topic, lambda partition: len(partition.isrs) == len(NODES))


def _wait(cluster: MeasuredCluster, topic: str, holds: Callable[[Any], bool]) -> None:
    asked = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    deadline = time.monotonic() + PATIENCE_S
    seen = "is not known"
    while time.monotonic() < deadline:
        found = asked.list_topics(topic, timeout=10).topics[topic].partitions.get(0)
        if found is not None:
            if holds(found):
                return
            seen = f"has leader {found.leader} and ISR {sorted(found.isrs)}"
        time.sleep(0.1)
    raise RuntimeError(f"after {PATIENCE_S:g} s {topic}-0 {seen}")
