"""An image as the records of a snapshot, and back."""

from __future__ import annotations

from typing import Any

from squall.broker.cluster.feed import ImageFeed
from squall.broker.cluster.image import ClusterImage, ImageDelta, full_delta
from squall.broker.cluster.replay import replay
from squall.broker.cluster.snapshot import difference, records_of, restored
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.schema import delete_topics, metadata_records
from tests.support.brokers.controller_harness import EPOCH, ControllerHarness


def busy_harness() -> ControllerHarness:
    harness = ControllerHarness(
        brokers=4,
        racks={1: "r1"},
        min_insync_replicas="2",
        squall_bootstrap_features="eligible.leader.replicas.version=1",
    )
    harness.topic("a", [1, 2, 3], [2, 3, 1], min_insync_replicas="2")
    harness.topic("b", [3, 4])
    harness.lose(3)
    harness.beat(1, stop=True)
    return harness


def through_a_snapshot(image: ClusterImage) -> ClusterImage:
    return restored([write.record for write in records_of(image)], image.offset, image.epoch)


def test_an_image_restored_from_its_snapshot_is_equal() -> None:
    image = busy_harness().image
    again = through_a_snapshot(image)
    assert again == image
    assert (again.offset, again.epoch) == (image.offset, EPOCH)
    assert list(again.topics_by_id) == list(image.topics_by_id), "in the same order"
    assert not again.delta


def test_an_empty_image_is_equal_too() -> None:
    assert through_a_snapshot(ClusterImage()) == ClusterImage()


def unserved() -> list[Any]:
    alice = metadata_records.EntityData("user", "alice")
    token = metadata_records.DelegationTokenRecord(owner="User:alice", token_id="t")
    return [
        metadata_records.AccessControlEntryRecord(id=b"1" * 16, principal="User:alice", operation=3),
        metadata_records.UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096),
        token,
        metadata_records.ClientQuotaRecord([alice], "producer_byte_rate", 1024.0),
        metadata_records.RegisterControllerRecord(controller_id=1, incarnation_id=b"2" * 16),
        metadata_records.ZkMigrationStateRecord(1),
    ]


def test_records_of_what_is_not_served_stay_in_snapshots_until_they_are_removed() -> None:
    image, written = busy_harness().image, unserved()
    for record in written:
        replay(image, record, image.offset + 1, EPOCH)
    assert through_a_snapshot(image) == image
    assert [record for record in records(through_a_snapshot(image)) if record in written] == written
    assert image.clone() == image
    newer = metadata_records.UserScramCredentialRecord("alice", 1, b"other", b"stored", b"server", 8192)
    elsewhere = metadata_records.UserScramCredentialRecord("alice", 2, b"salt", b"stored", b"server", 4096)
    for record in (newer, elsewhere):
        replay(image, record, image.offset + 1, EPOCH)
    kept = list(through_a_snapshot(image).kept.values())
    assert newer in kept and elsewhere in kept and written[1] not in kept
    for record in [
        metadata_records.RemoveAccessControlEntryRecord(b"1" * 16),
        metadata_records.RemoveUserScramCredentialRecord("alice", 1),
        metadata_records.RemoveDelegationTokenRecord("t"),
        metadata_records.ClientQuotaRecord(
            [metadata_records.EntityData("user", "alice")], "producer_byte_rate", 0, True
        ),
        metadata_records.UnregisterControllerRecord(1),
    ]:
        replay(image, record, image.offset + 1, EPOCH)
    assert list(through_a_snapshot(image).kept.values()) == [written[5], elsewhere]


def test_a_broker_may_be_unfenced_where_its_registration_came_from_a_snapshot() -> None:
    image = through_a_snapshot(busy_harness().image)
    assert all(broker.registered_at == broker.epoch for broker in image.brokers.values())


def told(feed: ImageFeed) -> list[ImageDelta]:
    deltas: list[ImageDelta] = []
    feed.follow(deltas.append)
    return deltas


def records(image: ClusterImage) -> list[Any]:
    return [write.record for write in records_of(image)]


def test_followers_of_an_image_are_told_what_a_snapshot_changed() -> None:
    harness, feed = busy_harness(), ImageFeed()
    before = harness.image.clone()
    held = feed.image
    feed.restored(records(before), before.offset, before.epoch)
    deltas = told(feed)
    gone = harness.image.topic("b")
    assert gone is not None
    harness.do(
        ApiKey.DELETE_TOPICS, delete_topics.DeleteTopicsRequest(topics=[delete_topics.DeleteTopicState(name="b")])
    )
    harness.topic("c", [2])
    harness.beat(3)
    version = feed.image.version
    feed.restored(records(harness.image), harness.image.offset, harness.image.epoch)
    [delta] = deltas
    assert feed.image is held, "readers keep the image they have"
    assert feed.image == harness.image and feed.image.version > version
    assert list(delta.deleted_topics) == [gone.id]
    assert [feed.image.topics_by_id[topic_id].name for topic_id in delta.created_topics] == ["c"]
    assert 3 in delta.brokers and delta.brokers[3] == before.brokers[3]
    created = harness.image.topic_ids["c"]
    assert (created, 0) in delta.partitions and delta.partitions[created, 0] is None


def test_the_first_snapshot_is_everything() -> None:
    image = busy_harness().image
    new = difference(ClusterImage(), image)
    whole = full_delta(image)
    assert (new.brokers, new.partitions, new.created_topics) == (whole.brokers, whole.partitions, whole.created_topics)
    assert (new.configs, new.features) == (whole.configs, whole.features)


def test_nothing_changes_between_equal_images() -> None:
    image = busy_harness().image
    assert not difference(image, image.clone())
