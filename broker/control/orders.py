"""Derives the orders for one broker's data plane from changes of the cluster image. The code is pure.

Control planes that publish their decisions as images, such as KRaft's, use it. A plane whose controller sends the
orders itself, such as ZooKeeper's (LeaderAndIsr, StopReplica), does not need it.
"""

# A broker takes up its replicas once its image holds the registration of its own incarnation. If it acted on each
# replayed record it would lead again in epochs that are over.

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from squall.broker.cluster.image import RECOVERING
from squall.broker.control.port import (
    BecomeFollower,
    BecomeLeader,
    BrokersChanged,
    Order,
    SettingsChanged,
    StopReplica,
)
from squall.broker.replication.values import BrokerStatuses, LeaderAndIsr

if TYPE_CHECKING:
    from squall.broker.cluster.image import ClusterImage, ImageDelta, PartitionImage


def orders_of(image: ClusterImage, delta: ImageDelta, broker_id: int) -> list[Order]:
    """Return the orders that apply `delta` to the replicas on `broker_id`. `image` is the image after `delta`.

    Broker changes come first, because a leader must know which brokers are fenced: it does not wait for their replicas.
    Deletions come before new topics, which may have the same name. Settings come last, when the replicas that they
    apply to exist. Only a raised min.insync.replicas applies earlier: a new leader uses it from the start
    (`Partition.expect`).
    """
    return list(_orders(image, delta, broker_id))


def _orders(image: ClusterImage, delta: ImageDelta, broker_id: int) -> Iterator[Order]:
    if delta.brokers:
        yield BrokersChanged(broker_view(image))
    for topic_id, topic in delta.deleted_topics.items():
        for index, last in topic.partitions.items():
            yield StopReplica(topic.name, topic_id, index, last.leader_epoch)
    for (topic_id, index), before in delta.partitions.items():
        partition = image.partition(topic_id, index)
        if partition is None:
            continue
        name = image.topics_by_id[topic_id].name
        if broker_id in partition.replicas:
            yield become(name, topic_id, index, partition, broker_id)
        elif before is not None and broker_id in before.replicas:
            yield StopReplica(name, topic_id, index, partition.leader_epoch)
    for kind, name in delta.configs:
        yield SettingsChanged(kind, name)


def become(
    topic: str, topic_id: bytes, index: int, partition: PartitionImage, broker_id: int
) -> BecomeLeader | BecomeFollower:
    """Return BecomeLeader if `broker_id` leads the partition, else BecomeFollower, with the partition's state."""
    state = LeaderAndIsr(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=partition.isr,
        replicas=partition.replicas,
    )
    kind = BecomeLeader if partition.leader == broker_id else BecomeFollower
    return kind(topic, topic_id, index, state, partition.leader_recovery_state == RECOVERING)


def broker_view(image: ClusterImage) -> BrokerStatuses:
    """Return epochs, fenced brokers and brokers in controlled shutdown from an image."""
    brokers = image.brokers.values()
    return BrokerStatuses(
        epochs={b.id: b.epoch for b in brokers},
        fenced=frozenset([b.id for b in brokers if b.fenced]),
        shutting_down=frozenset([b.id for b in brokers if b.in_controlled_shutdown]),
    )
