"""Applies metadata records to the cluster image. No other code changes an image.

The records are those of Kafka's metadata log (KIP-500, KIP-631). A record that contradicts the image is a bug of the
controller that wrote it, or a damaged log: an AssertionError stops the node before it acts on a wrong image.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from squall.broker.cluster.image import METADATA_VERSION, TOPIC_RESOURCE, Broker, ClusterImage, PartitionImage, Topic
from squall.broker.cluster.unserved_records import KEEP
from squall.broker.protocol.ids import NO_NODE
from squall.broker.protocol.schema import metadata_records as records

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITION_VERSION = 2
"""Is the version in which partition records are written, in the log and in snapshots."""
CORDONED_LEVEL = 30
"""Is the level of metadata.version (Kafka's 4.3-IV0) from which a broker's record includes its cordoned log
directories.
"""
LEADER_UNCHANGED = -2
"""Is the value of `PartitionChangeRecord.leader` if the leader, and so the leader epoch, stays."""
RECOVERY_UNCHANGED = -1
"""Is the value of `PartitionChangeRecord.leader_recovery_state` if that state stays."""


class MetadataRecord(NamedTuple):
    """Holds one record to append to the metadata log."""

    record: Any
    """Holds the record's content, such as a RegisterBrokerRecord (squall.broker.protocol.schema.metadata_records)."""
    version: int
    """Gives the version of the record's schema in which the record is written."""


def replay(image: ClusterImage, record: Any, offset: int, epoch: int) -> None:
    """Apply one record to `image`, and note the change in `image.delta`.

    Records must come in order of their offsets, each once. Records without content (NoOpRecord, BeginTransactionRecord)
    only move the offset of the image; records of features that Squall lacks are kept for snapshots.
    """
    assert offset > image.offset, f"record {offset} after {image.offset}"
    assert epoch >= image.epoch, f"epoch {epoch} after {image.epoch}"
    image.offset = offset
    image.epoch = epoch
    apply = APPLY.get(type(record))
    if apply is not None:
        apply(image, record)


def register_broker_version(image: ClusterImage) -> int:
    """Return the version in which a broker's registration is written, in the log and in snapshots."""
    return 4 if image.features.get(METADATA_VERSION, 0) >= CORDONED_LEVEL else 3


def _register_broker(image: ClusterImage, record: records.RegisterBrokerRecord) -> None:
    before = image.brokers.get(record.broker_id)
    assert before is None or before.epoch <= record.broker_epoch, f"epoch {record.broker_epoch} after {before}"
    _note_broker(image, record.broker_id)
    image.brokers[record.broker_id] = Broker(
        id=record.broker_id,
        epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints={endpoint.name: (endpoint.host, endpoint.port) for endpoint in record.end_points},
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        rack=record.rack,
        registered_at=image.offset,
        log_dirs=tuple(record.log_dirs),
        cordoned_log_dirs=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        features=tuple((f.name, f.min_supported_version, f.max_supported_version) for f in record.features),
    )


def _unregister_broker(image: ClusterImage, record: records.UnregisterBrokerRecord) -> None:
    _registered(image, record.broker_id, record.broker_epoch)
    _note_broker(image, record.broker_id)
    del image.brokers[record.broker_id]


def _fence_broker(image: ClusterImage, record: records.FenceBrokerRecord) -> None:
    _set_broker(image, replace(_registered(image, record.id, record.epoch), fenced=True))


def _unfence_broker(image: ClusterImage, record: records.UnfenceBrokerRecord) -> None:
    _set_broker(image, replace(_registered(image, record.id, record.epoch), fenced=False))


def _change_broker(image: ClusterImage, record: records.BrokerRegistrationChangeRecord) -> None:
    broker = _registered(image, record.broker_id, record.broker_epoch)
    # In the first two fields 1 sets, -1 clears and 0 changes nothing. No log directory at all means no change, too.
    if record.fenced:
        broker = replace(broker, fenced=record.fenced > 0)
    if record.in_controlled_shutdown:
        broker = replace(broker, in_controlled_shutdown=record.in_controlled_shutdown > 0)
    if record.log_dirs:
        broker = replace(broker, log_dirs=tuple(record.log_dirs))
    if record.cordoned_log_dirs is not None:
        broker = replace(broker, cordoned_log_dirs=tuple(record.cordoned_log_dirs))
    _set_broker(image, broker)


def _registered(image: ClusterImage, broker_id: int, epoch: int) -> Broker:
    broker = image.brokers.get(broker_id)
    assert broker is not None, f"broker {broker_id} is not registered"
    assert broker.epoch == epoch, f"broker {broker_id} has epoch {broker.epoch}, the record {epoch}"
    return broker


def _set_broker(image: ClusterImage, broker: Broker) -> None:
    if image.brokers[broker.id] != broker:
        _note_broker(image, broker.id)
        image.brokers[broker.id] = broker


def _note_broker(image: ClusterImage, broker_id: int) -> None:
    image.version += 1
    # The delta keeps the value before the first of its records, so a later change of the same broker adds nothing.
    image.delta.brokers.setdefault(broker_id, image.brokers.get(broker_id))


def _topic(image: ClusterImage, record: records.TopicRecord) -> None:
    assert record.name not in image.topic_ids, f"topic {record.name} exists"
    assert record.topic_id not in image.topics_by_id, f"topic id {record.topic_id.hex()} exists"
    image.topics_by_id[record.topic_id] = Topic(record.name, record.topic_id)
    image.topic_ids[record.name] = record.topic_id
    image.version += 1
    image.delta.created_topics[record.topic_id] = None


def _remove_topic(image: ClusterImage, record: records.RemoveTopicRecord) -> None:
    topic = image.topics_by_id.pop(record.topic_id, None)
    assert topic is not None, f"no topic has the id {record.topic_id.hex()}"
    del image.topic_ids[topic.name]
    image.version += 1
    delta = image.delta
    if image.configs.pop((TOPIC_RESOURCE, topic.name), None) is not None:
        delta.configs[TOPIC_RESOURCE, topic.name] = None
    for index in topic.partitions:
        delta.partitions.pop((topic.id, index), None)
    # Followers of the image have not seen a topic that the same run of records created: the delta forgets it.
    if topic.id in delta.created_topics:
        del delta.created_topics[topic.id]
    else:
        delta.deleted_topics[topic.id] = topic


def _partition(image: ClusterImage, record: records.PartitionRecord) -> None:
    _set_partition(
        image,
        record.topic_id,
        record.partition_id,
        PartitionImage(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=record.leader_recovery_state,
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            adding=tuple(record.adding_replicas or ()),
            removing=tuple(record.removing_replicas or ()),
        ),
    )


def _change_partition(image: ClusterImage, record: records.PartitionChangeRecord) -> None:
    before = image.partition(record.topic_id, record.partition_id)
    assert before is not None, f"no partition {record.topic_id.hex()}-{record.partition_id}"
    _set_partition(image, record.topic_id, record.partition_id, changed(before, record))


def changed(partition: PartitionImage, record: records.PartitionChangeRecord) -> PartitionImage:
    """Return the state of `partition` after `record`. Naming a leader, even the present one, bumps the leader epoch
    (mechanism E1 in docs/mechanisms.md).
    """
    named = record.leader != LEADER_UNCHANGED
    recovery = record.leader_recovery_state
    return PartitionImage(
        replicas=_either(record.replicas, partition.replicas),
        isr=_either(record.isr, partition.isr),
        leader=record.leader if named else partition.leader,
        leader_epoch=partition.leader_epoch + 1 if named else partition.leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
        leader_recovery_state=partition.leader_recovery_state if recovery == RECOVERY_UNCHANGED else recovery,
        elr=_either(record.eligible_leader_replicas, partition.elr),
        last_known_elr=_either(record.last_known_elr, partition.last_known_elr),
        adding=_either(record.adding_replicas, partition.adding),
        removing=_either(record.removing_replicas, partition.removing),
    )


def _either(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def _set_partition(image: ClusterImage, topic_id: bytes, index: int, partition: PartitionImage) -> None:
    assert partition.leader == NO_NODE or partition.leader in partition.isr, f"leader outside the ISR: {partition}"
    assert set(partition.isr) <= set(partition.replicas), f"ISR outside the replicas: {partition}"
    assert set(partition.isr).isdisjoint(partition.elr), f"in the ISR and eligible for it: {partition}"
    assert len(set(partition.replicas)) == len(partition.replicas) > 0, f"replicas none or twice: {partition}"
    partitions = image.topics_by_id[topic_id].partitions
    before = partitions.get(index)
    assert before is None or before.partition_epoch < partition.partition_epoch, f"{partition} after {before}"
    assert before is None or before.leader_epoch <= partition.leader_epoch, f"{partition} after {before}"
    image.version += 1
    image.delta.partitions.setdefault((topic_id, index), before)
    partitions[index] = partition


def _config(image: ClusterImage, record: records.ConfigRecord) -> None:
    resource = (record.resource_type, record.resource_name)
    values = image.configs.setdefault(resource, {})
    if record.value is None:
        values.pop(record.name, None)
    else:
        values[record.name] = record.value
    if not values:
        del image.configs[resource]
    image.delta.configs[resource] = None


def _feature_level(image: ClusterImage, record: records.FeatureLevelRecord) -> None:
    # Level 0 turns a feature off. A feature that is off has no entry, in Kafka's image as well.
    if record.feature_level == 0:
        image.features.pop(record.name, None)
    else:
        image.features[record.name] = record.feature_level
    image.features_offset = image.offset
    image.version += 1
    image.delta.features = True


def _clear_elr(image: ClusterImage, record: records.ClearElrRecord) -> None:
    """Empty the ELRs because min ISR has changed: a replica eligible under the old value may lack records that are
    committed under the new value.

    The ELR stays if the ISR is empty: nothing has been committed since, and only the ELR's replicas are known to hold
    the committed records. (Kafka clears the ELR in this case too, and then no replica is left that may lead.)
    """
    names = [record.topic_name] if record.topic_name else list(image.topic_ids)
    for topic_id in [image.topic_ids[name] for name in names if name in image.topic_ids]:
        for index, partition in list(image.topics_by_id[topic_id].partitions.items()):
            if partition.isr and (partition.elr or partition.last_known_elr):
                cleared = records.PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                _set_partition(image, topic_id, index, changed(partition, cleared))


def _producer_ids(image: ClusterImage, record: records.ProducerIdsRecord) -> None:
    assert record.next_producer_id >= image.next_producer_id, "producer ids never go back"
    image.next_producer_id = record.next_producer_id


APPLY: dict[type[Any], Callable[[ClusterImage, Any], None]] = {
    records.RegisterBrokerRecord: _register_broker,
    records.UnregisterBrokerRecord: _unregister_broker,
    records.FenceBrokerRecord: _fence_broker,
    records.UnfenceBrokerRecord: _unfence_broker,
    records.BrokerRegistrationChangeRecord: _change_broker,
    records.TopicRecord: _topic,
    records.RemoveTopicRecord: _remove_topic,
    records.PartitionRecord: _partition,
    records.PartitionChangeRecord: _change_partition,
    records.ConfigRecord: _config,
    records.FeatureLevelRecord: _feature_level,
    records.ProducerIdsRecord: _producer_ids,
    records.ClearElrRecord: _clear_elr,
    **KEEP,
}
"""Maps each type of record to the function that applies it to an image."""
