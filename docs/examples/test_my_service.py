"""Tests of one's own against a cluster that breaks: docs/fixture.md explains them."""

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition


def send(bootstrap: str, values: list[bytes], broken: Callable[[], object] = lambda: None) -> dict[bytes, int]:
    """The software under test: a producer. It sends half, something breaks, and it sends the rest.

    Value -> offset of what was acknowledged.
    """
    acknowledged: dict[bytes, int] = {}

    def delivered(error: object, message: object) -> None:
        if error is None:
            acknowledged[message.value()] = message.offset()

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "delivery.timeout.ms": 30_000})
    half = len(values) // 2
    for value in values[:half]:
        producer.produce("orders", value, on_delivery=delivered)
    producer.flush(30)
    broken()
    for value in values[half:]:
        producer.produce("orders", value, on_delivery=delivered)
    producer.flush(30)
    return acknowledged


def read(bootstrap: str) -> list[bytes]:
    """All that the topic holds."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    place = TopicPartition("orders", 0)
    _, end = consumer.get_watermark_offsets(place, timeout=10)
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: list[bytes] = []
    while len(found) < end:
        found += [message.value() for message in consumer.consume(end - len(found), timeout=10)]
    consumer.close()
    return found


VALUES = [b"order-%d" % number for number in range(200)]


def test_nothing_acknowledged_is_lost_when_the_leader_is_killed(squall_cluster):
    squall_cluster.create_topic("orders", replication_factor=3, min_insync_replicas="2")
    leader = squall_cluster.leader("orders")
    nemesis = squall_cluster.nemesis
    acknowledged = send(squall_cluster.bootstrap, VALUES, broken=lambda: nemesis.kill(leader))
    assert squall_cluster.leader("orders") != leader
    nemesis.restart(leader)
    nemesis.heal()
    found = read(squall_cluster.bootstrap)
    assert set(acknowledged) == set(VALUES)
    assert sorted(found) == sorted(VALUES), "nothing lost, nothing doubled"
    assert set(squall_cluster.isr("orders")) == {1, 2, 3}


@pytest.mark.squall_cluster(nodes=1)
def test_a_producer_gives_up_in_time_when_it_is_cut_off(squall_cluster):
    squall_cluster.create_topic("orders", replication_factor=1)
    proof = squall_cluster.nemesis.partition(1, side="clients", manner="drop")
    assert "CLIENT" in proof.words
    outcomes = []
    producer = Producer({"bootstrap.servers": squall_cluster.bootstrap, "delivery.timeout.ms": 2_000})
    producer.produce("orders", b"lost?", on_delivery=lambda error, message: outcomes.append(error))
    assert producer.flush(20) == 0
    assert outcomes[0] is not None
    squall_cluster.nemesis.heal()
