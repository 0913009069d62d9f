"""Writes the controller's decisions, once they are committed, as events to the trace (the event log) of its node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.broker.cluster.image import RECOVERING

if TYPE_CHECKING:
    from squall.broker.cluster.image import Broker, ClusterImage, ImageDelta
    from squall.broker.env import Env


def trace_changes(env: Env, image: ClusterImage, delta: ImageDelta) -> None:
    """Trace one line for each broker fenced or unfenced, topic created or deleted, and leader elected or lost."""
    for broker_id, before in delta.brokers.items():
        _trace_broker(env, broker_id, before, image.brokers.get(broker_id))
    for topic_id in delta.created_topics:
        topic = image.topics_by_id[topic_id]
        leaders = [partition.leader for partition in topic.partitions.values()]
        env.trace("topic_created", topic=topic.name, topic_id=topic_id.hex(), leaders=leaders)
    for topic in delta.deleted_topics.values():
        env.trace("topic_deleted", topic=topic.name, topic_id=topic.id.hex())
    for (topic_id, index), was in delta.partitions.items():
        partition = image.partition(topic_id, index)
        if was is None or partition is None or partition.leader_epoch == was.leader_epoch:
            continue
        env.trace(
            "leader_elected",
            topic=image.topics_by_id[topic_id].name,
            partition=index,
            leader=partition.leader,
            before=was.leader,
            epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=list(partition.isr),
            unclean=partition.leader_recovery_state == RECOVERING,
        )


def _trace_broker(env: Env, broker_id: int, before: Broker | None, now: Broker | None) -> None:
    was_serving = before is not None and not before.fenced
    serves = now is not None and not now.fenced
    epoch = now.epoch if now is not None else -1
    if was_serving and (not serves or (before is not None and now is not None and before.epoch != now.epoch)):
        env.trace("broker_fenced", broker=broker_id, broker_epoch=epoch)
    if serves and (not was_serving or (before is not None and now is not None and before.epoch != now.epoch)):
        env.trace("broker_unfenced", broker=broker_id, broker_epoch=epoch)
    if now is not None and now.in_controlled_shutdown and not (before is not None and before.in_controlled_shutdown):
        env.trace("broker_stopping", broker=broker_id, broker_epoch=epoch)
