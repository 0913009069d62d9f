"""Checks what a client believes of the cluster: it only moves forward."""

from __future__ import annotations

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from squall.broker.protocol.wire import ZERO_UUID
from squall.workloads.client.cluster import ClusterMetadata, Leader

ID, OTHER_ID = b"1" * 16, b"2" * 16
NODES = [MetadataResponseBroker(node, f"node-{node}", 9092) for node in (1, 2, 3)]


def answer(leader: int, epoch: int, topic_id: bytes = ID, nodes: int = 3) -> MetadataResponse:
    part = MetadataResponsePartition(0, 0, leader, epoch, [1, 2, 3], [1, 2])
    topic = MetadataResponseTopic(0, "t", topic_id, False, [part])
    return MetadataResponse(brokers=NODES[:nodes], topics=[topic])


def test_leaders_are_known_and_changes_told() -> None:
    view = ClusterMetadata()
    assert view.leader("t", 0) is None
    assert view.apply(answer(1, 5), ["t"]) == [("t", 0)]
    assert view.leader("t", 0) == Leader(1, 5)
    assert view.apply(answer(1, 5), ["t"]) == []
    assert view.apply(answer(2, 6), ["t"]) == [("t", 0)]
    assert view.topics["t"].in_sync[0] == (1, 2)
    assert view.name_of(ID) == "t" and view.topic_id("t") == ID


def test_an_older_epoch_changes_nothing() -> None:
    view = ClusterMetadata()
    view.apply(answer(2, 6), ["t"])
    assert view.apply(answer(1, 5), ["t"]) == []
    assert view.leader("t", 0) == Leader(2, 6)
    assert not view.hint("t", 0, Leader(1, 6), ("node-1", 9092))


def test_a_topic_made_anew_begins_from_its_first_epoch() -> None:
    view = ClusterMetadata()
    view.apply(answer(2, 6), ["t"])
    assert view.apply(answer(1, 0, OTHER_ID), ["t"]) == [("t", 0)]
    assert view.leader("t", 0) == Leader(1, 0)
    assert view.name_of(ID) is None and view.name_of(OTHER_ID) == "t"


def test_a_broker_that_does_not_know_the_topic_does_not_make_it_forgotten() -> None:
    view = ClusterMetadata()
    view.apply(answer(2, 6), ["t"])
    unknown = MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t", ZERO_UUID)
    assert view.apply(MetadataResponse(brokers=NODES, topics=[unknown]), ["t"]) == []
    assert view.leader("t", 0) == Leader(2, 6) and view.topic_id("t") == ID


def test_a_partition_without_leader_is_led_by_nobody_until_one_is_elected() -> None:
    view = ClusterMetadata()
    view.apply(answer(1, 5), ["t"])
    assert view.apply(answer(-1, 6), ["t"]) == []
    assert view.leader("t", 0) is None
    assert view.apply(answer(2, 7), ["t"]) == [("t", 0)]


def test_a_hint_is_news_only_with_a_newer_epoch_and_a_known_address() -> None:
    view = ClusterMetadata()
    view.apply(answer(1, 5), ["t"])
    assert not view.hint("t", 0, Leader(9, 6), None)
    assert view.hint("t", 0, Leader(9, 6), ("node-9", 9092))
    assert view.leader("t", 0) == Leader(9, 6) and view.nodes[9] == ("node-9", 9092)
    assert not view.hint("t", 0, Leader(-1, -1), None)
    assert not view.hint("unknown", 0, Leader(1, 9), None)


def test_a_leader_without_an_address_cannot_be_asked() -> None:
    view = ClusterMetadata()
    view.apply(answer(3, 5, nodes=2), ["t"])
    assert view.leader("t", 0) is None


def test_topics_that_nobody_asked_for_are_left_out() -> None:
    view = ClusterMetadata()
    view.apply(answer(1, 5), ["other"])
    assert view.topics == {}
