"""Converts a cluster image into metadata records and back: the content of a snapshot of the metadata log (KIP-630).

The records, replayed into an empty image, give an equal image. `snapshot_store` decides how a file holds them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from squall.broker.cluster.image import Broker, ClusterImage, ImageDelta, PartitionImage, Topic
from squall.broker.cluster.replay import APPLY, PARTITION_VERSION, MetadataRecord, register_broker_version
from squall.broker.protocol.schema import metadata_records as records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LISTENER_PROTOCOL = 0
"""Is the security protocol PLAINTEXT. Listeners support no other."""


def records_of(image: ClusterImage) -> list[MetadataRecord]:
    """Return the records that produce `image` if they are replayed in this order."""
    return [
        # Features first, as in Kafka's snapshots: the level of metadata.version says how to read the other records.
        *(
            MetadataRecord(records.FeatureLevelRecord(name=name, feature_level=n), 0)
            for name, n in image.features.items()
        ),
        *(MetadataRecord(_broker_record(broker), register_broker_version(image)) for broker in image.brokers.values()),
        *(write for topic in image.topics_by_id.values() for write in _topic_records(topic)),
        *_config_records(image),
        MetadataRecord(records.ProducerIdsRecord(next_producer_id=image.next_producer_id), 0),
        *(MetadataRecord(record, 0) for record in image.kept.values()),
    ]


def _broker_record(broker: Broker) -> records.RegisterBrokerRecord:
    return records.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            records.BrokerEndpoint(name=name, host=host, port=port, security_protocol=LISTENER_PROTOCOL)
            for name, (host, port) in broker.endpoints.items()
        ],
        features=[
            records.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs),
    )


def _topic_records(topic: Topic) -> Iterator[MetadataRecord]:
    yield MetadataRecord(records.TopicRecord(name=topic.name, topic_id=topic.id), 0)
    for index, partition in topic.partitions.items():
        yield MetadataRecord(_partition_record(topic.id, index, partition), PARTITION_VERSION)


def _partition_record(topic_id: bytes, index: int, partition: PartitionImage) -> records.PartitionRecord:
    return records.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        eligible_leader_replicas=list(partition.elr) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def _config_records(image: ClusterImage) -> Iterator[MetadataRecord]:
    for (kind, resource), values in image.configs.items():
        for name, value in values.items():
            record = records.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
            yield MetadataRecord(record, 0)


def restored(found: Iterable[Any], offset: int, epoch: int) -> ClusterImage:
    """Return the image that the records of a snapshot describe. `offset` and `epoch` are those of its last record.

    A snapshot does not say at which offset a broker's registration last changed. The broker epoch, which is the offset
    of the first registration record of the incarnation, takes its place.
    """
    image = ClusterImage(offset=offset, epoch=epoch)
    for record in found:
        apply = APPLY.get(type(record))
        if apply is not None:
            apply(image, record)
    for broker in list(image.brokers.values()):
        image.brokers[broker.id] = replace(broker, registered_at=broker.epoch)
    image.take_delta()  # It says that everything is new; the feed wants the difference to its own image instead.
    return image


def difference(old: ClusterImage, new: ClusterImage) -> ImageDelta:
    """Return the changes from `old` to `new`, as if the records in between had been replayed into `old`."""
    delta = ImageDelta(features=old.features != new.features)
    for broker_id in dict.fromkeys([*old.brokers, *new.brokers]):
        if old.brokers.get(broker_id) != new.brokers.get(broker_id):
            delta.brokers[broker_id] = old.brokers.get(broker_id)
    for topic_id, topic in old.topics_by_id.items():
        if topic_id not in new.topics_by_id:
            delta.deleted_topics[topic_id] = topic
    for topic_id, topic in new.topics_by_id.items():
        if topic_id not in old.topics_by_id:
            delta.created_topics[topic_id] = None
        for index, partition in topic.partitions.items():
            before = old.partition(topic_id, index)
            if before != partition:
                delta.partitions[topic_id, index] = before
    for resource in dict.fromkeys([*old.configs, *new.configs]):
        if old.configs.get(resource) != new.configs.get(resource):
            delta.configs[resource] = None
    return delta
