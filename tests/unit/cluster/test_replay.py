"""Records into the image."""

from __future__ import annotations

import pytest

from squall.broker.cluster.image import TOPIC_RESOURCE, ClusterImage, full_delta
from squall.broker.cluster.replay import replay
from squall.broker.protocol.schema.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

TOPIC = b"t" * 16


def image_of(*records: object) -> ClusterImage:
    image = ClusterImage()
    for offset, record in enumerate(records):
        replay(image, record, offset, 1)
    return image


def a_partition(**changes: object) -> PartitionRecord:
    fields: dict[str, object] = {
        "partition_id": 0,
        "topic_id": TOPIC,
        "replicas": [1, 2, 3],
        "isr": [1, 2, 3],
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
    }
    return PartitionRecord(**{**fields, **changes})  # type: ignore[arg-type]


def with_topic(*more: object) -> ClusterImage:
    return image_of(TopicRecord(name="t", topic_id=TOPIC), a_partition(), *more)


def a_registration(**changes: object) -> RegisterBrokerRecord:
    fields: dict[str, object] = {"broker_id": 1, "broker_epoch": 0, "incarnation_id": b"i" * 16}
    endpoint = BrokerEndpoint(name="CLIENT", host="h", port=9)
    return RegisterBrokerRecord(**{**fields, "end_points": [endpoint], "rack": "r", **changes})  # type: ignore[arg-type]


def test_a_registered_broker_starts_fenced_and_keeps_where_its_registration_stands() -> None:
    broker = image_of(NoOpRecord(), a_registration(broker_epoch=1)).brokers[1]
    assert (broker.fenced, broker.active, broker.epoch, broker.registered_at) == (True, False, 1, 1)
    assert broker.endpoints == {"CLIENT": ("h", 9)}
    assert broker.rack == "r"


def test_both_kinds_of_fencing_records_fence_and_unfence() -> None:
    changed = BrokerRegistrationChangeRecord
    assert not image_of(a_registration(), UnfenceBrokerRecord(id=1, epoch=0)).brokers[1].fenced
    assert not image_of(a_registration(), changed(broker_id=1, broker_epoch=0, fenced=-1)).brokers[1].fenced
    unfenced = a_registration(fenced=False)
    assert image_of(unfenced, FenceBrokerRecord(id=1, epoch=0)).brokers[1].fenced
    assert image_of(unfenced, changed(broker_id=1, broker_epoch=0, fenced=1)).brokers[1].fenced


def test_a_change_of_registration_leaves_alone_what_it_does_not_name() -> None:
    record = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, in_controlled_shutdown=1)
    broker = image_of(a_registration(fenced=False), record).brokers[1]
    assert broker.in_controlled_shutdown
    assert not broker.fenced
    assert not broker.active


def test_a_change_of_log_directories_names_all_of_them() -> None:
    first, second = b"1" * 16, b"2" * 16
    change = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, cordoned_log_dirs=[second])
    change.log_dirs = [first, second]
    broker = image_of(a_registration(), change).brokers[1]
    assert (broker.log_dirs, broker.cordoned_log_dirs) == ((first, second), (second,))
    assert not broker.cordoned, "the first one takes new replicas"
    open_again = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=0, cordoned_log_dirs=[])
    assert image_of(a_registration(), change, open_again).brokers[1].cordoned_log_dirs == ()


def test_an_unregistered_broker_is_gone() -> None:
    assert image_of(a_registration(), UnregisterBrokerRecord(broker_id=1, broker_epoch=0)).brokers == {}


def test_a_change_of_another_incarnation_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="epoch"):
        image_of(a_registration(), FenceBrokerRecord(id=1, epoch=5))


def test_a_change_without_a_leader_bumps_the_partition_epoch_only() -> None:
    image = with_topic(PartitionChangeRecord(topic_id=TOPIC, partition_id=0, isr=[1, 2]))
    partition = image.partition(TOPIC, 0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 0, 1)
    assert partition.isr == (1, 2)


def test_naming_the_leader_bumps_both_epochs_even_when_it_stays() -> None:
    partition = with_topic(PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=1)).partition(TOPIC, 0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 1)


def test_a_leader_outside_the_isr_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="outside"):
        with_topic(PartitionChangeRecord(topic_id=TOPIC, partition_id=0, leader=3, isr=[1, 2]))


def test_removing_a_topic_removes_its_partitions_name_and_settings() -> None:
    config = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name="retention.ms", value="5")
    image = with_topic(config)
    assert image.configs == {(TOPIC_RESOURCE, "t"): {"retention.ms": "5"}}
    image.take_delta()
    replay(image, RemoveTopicRecord(topic_id=TOPIC), 9, 1)
    assert (image.topics_by_id, image.topic_ids, image.configs) == ({}, {}, {})
    assert list(image.delta.deleted_topics) == [TOPIC]
    assert list(image.delta.deleted_topics[TOPIC].partitions) == [0]
    assert image.delta.partitions == {}


def test_a_setting_without_a_value_goes_back_to_its_default() -> None:
    one = ConfigRecord(resource_type=4, resource_name="", name="a", value="1")
    none = ConfigRecord(resource_type=4, resource_name="", name="a", value=None)
    assert image_of(one, none).configs == {}


def test_a_topic_that_comes_and_goes_within_a_delta_leaves_no_trace_in_it() -> None:
    image = with_topic(RemoveTopicRecord(topic_id=TOPIC))
    assert not image.take_delta()


def test_a_delta_says_what_was_there_before_its_first_record() -> None:
    image = with_topic()
    image.take_delta()
    before = image.partition(TOPIC, 0)
    for offset, isr in ((10, [1, 2]), (11, [1])):
        replay(image, PartitionChangeRecord(topic_id=TOPIC, partition_id=0, isr=isr), offset, 1)
    assert image.take_delta().partitions == {(TOPIC, 0): before}
    assert not image.delta


def test_levels_and_producer_ids_are_kept() -> None:
    level = FeatureLevelRecord(name="metadata.version", feature_level=29)
    image = image_of(level, ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=1000))
    assert image.features == {"metadata.version": 29}
    assert image.features_offset == 0
    assert image.next_producer_id == 1000


def test_records_that_clients_cannot_see_leave_the_version_alone() -> None:
    image = with_topic()
    before = image.version
    replay(image, ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=1000), 10, 1)
    replay(image, NoOpRecord(), 11, 1)
    assert image.version == before
    replay(image, PartitionChangeRecord(topic_id=TOPIC, partition_id=0, isr=[1]), 12, 1)
    assert image.version == before + 1


def test_a_record_is_applied_once_and_in_order() -> None:
    image = with_topic()
    with pytest.raises(AssertionError, match="after"):
        replay(image, NoOpRecord(), image.offset, 1)


def test_a_clone_shares_nothing_that_can_change() -> None:
    image = with_topic(a_registration())
    clone = image.clone()
    assert clone == image
    replay(clone, PartitionChangeRecord(topic_id=TOPIC, partition_id=0, isr=[1]), 20, 1)
    replay(clone, ConfigRecord(resource_type=4, resource_name="", name="a", value="1"), 21, 1)
    replay(clone, UnregisterBrokerRecord(broker_id=1, broker_epoch=0), 22, 1)
    partition = image.partition(TOPIC, 0)
    assert partition is not None
    assert partition.isr == (1, 2, 3)
    assert image.configs == {}
    assert list(image.brokers) == [1]


def test_everything_is_a_delta_from_nothing() -> None:
    image = with_topic(a_registration())
    delta = full_delta(image)
    assert delta.partitions == {(TOPIC, 0): None}
    assert delta.brokers == {1: None}
    assert list(delta.created_topics) == [TOPIC]
