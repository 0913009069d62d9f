"""No broker gets more replicas than its setting permits, by whichever request."""

from __future__ import annotations

import pytest

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import create_topics as create_wire
from tests.support.brokers.controller_harness import ControllerHarness
from tests.unit.controller.test_reassignments import move
from tests.unit.controller.test_topics import assigned, grow, outcome


def small() -> ControllerHarness:
    return ControllerHarness(squall_broker_max_replicas="4")


def refused(broker: int, there: int, more: int) -> tuple[ErrorCode, str]:
    limit = "squall.broker.max.replicas=4"
    told = f"Broker {broker} has {there} replicas; with {more} more it would have more than {limit}."
    return ErrorCode.POLICY_VIOLATION, told


def test_a_topic_that_has_room_is_made_and_one_more_is_not() -> None:
    harness = small()
    assert outcome(harness.create("t", 4, 3)) == (ErrorCode.NONE, None)
    assert outcome(harness.create("u", -1, -1, assignments=assigned(p0=[2]))) == refused(2, 4, 1)
    assert "u" not in harness.image.topic_ids


def test_topics_of_one_request_share_the_room() -> None:
    harness = small()
    topics = [
        create_wire.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assigned(**given))
        for name, given in (("a", {"p0": [1], "p1": [1], "p2": [1]}), ("b", {"p0": [1], "p1": [1]}), ("c", {"p0": [1]}))
    ]
    request = create_wire.CreateTopicsRequest(topics=topics)
    found = {each.name: outcome(each) for each in harness.do(ApiKey.CREATE_TOPICS, request).topics}
    assert found == {"a": (ErrorCode.NONE, None), "b": refused(1, 3, 2), "c": (ErrorCode.NONE, None)}


def test_partitions_are_added_as_far_as_there_is_room() -> None:
    harness = small()
    harness.topic("t", [1], [1], [1])
    assert grow(harness, "t", 5, [1], [1]) == refused(1, 3, 2)
    assert grow(harness, "t", 4, [1]) == (ErrorCode.NONE, None)


@pytest.mark.parametrize(("replicas", "fits"), [([1, 2], True), ([1, 3], False)])
def test_a_partition_moves_where_there_is_room(replicas: list[int], fits: bool) -> None:
    harness = small()
    harness.topic("full", [3], [3], [3], [3])
    harness.topic("t", [1])
    assert move(harness, "t", replicas) == ((ErrorCode.NONE, None) if fits else refused(3, 4, 1))


def test_who_stays_needs_no_room() -> None:
    harness = small()
    harness.topic("full", [3], [3], [3])
    harness.topic("t", [1, 3])
    assert move(harness, "t", [3, 2]) == (ErrorCode.NONE, None)
