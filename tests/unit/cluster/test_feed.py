"""ImageFeed: committed records go in, changes of the image come out."""

from __future__ import annotations

from squall.broker.cluster.feed import ImageFeed
from squall.broker.cluster.image import ImageDelta
from squall.broker.protocol.schema.metadata_records import FeatureLevelRecord, NoOpRecord, PartitionRecord, TopicRecord

TOPIC = b"t" * 16
HISTORY = [
    (1, 1, TopicRecord(name="t", topic_id=TOPIC)),
    (2, 1, PartitionRecord(topic_id=TOPIC, partition_id=0, replicas=[1], isr=[1], leader=1)),
]


def test_followers_hear_of_each_run_of_records_in_the_order_in_which_they_came() -> None:
    feed, heard = ImageFeed(), list[tuple[str, ImageDelta]]()
    feed.follow(lambda delta: heard.append(("first", delta)))
    feed.follow(lambda delta: heard.append(("second", delta)))
    feed.committed(HISTORY)
    feed.committed([(3, 1, NoOpRecord())])
    assert [name for name, _ in heard] == ["first", "second", "first", "second"]
    assert list(heard[0][1].partitions) == [(TOPIC, 0)]
    assert not heard[2][1]
    assert feed.image.offset == 3


def test_who_begins_later_may_be_told_all_that_is_there() -> None:
    feed, late, caught_up = ImageFeed(), list[ImageDelta](), list[ImageDelta]()
    feed.committed(HISTORY)
    feed.follow(late.append)
    feed.follow(caught_up.append, caught_up=True)
    assert late == []
    assert [list(delta.partitions) for delta in caught_up] == [[(TOPIC, 0)]]
    feed.committed([(3, 1, FeatureLevelRecord(name="f", feature_level=1))])
    assert late[0].features and caught_up[1].features
    assert not caught_up[1].partitions
