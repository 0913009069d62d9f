"""Responses to ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest

from squall.broker.apis.consumer_groups import ConsumerGroupApis
from squall.broker.apis.large_responses import LargeResponseLane
from squall.broker.coordinators.groups.consumer.answers import DescribedMember, HeartbeatResult
from squall.broker.coordinators.groups.consumer.members import (
    LEAVES,
    LEAVES_FOR_NOW,
    CurrentAssignment,
    MemberSubscription,
)
from tests.support.brokers.coordinators import GroupBroker


def apis_of(nursery: Any) -> ConsumerGroupApis:
    broker = GroupBroker(nursery)
    broker.give("t")
    return ConsumerGroupApis(broker.env, broker.image, broker.coordinator, broker.config, LargeResponseLane(broker.env))


@pytest.mark.parametrize(("epoch", "interval_ms"), [(3, 5_000), (LEAVES, 0), (LEAVES_FOR_NOW, 0)])
async def test_a_member_that_leaves_has_no_next_heartbeat(epoch: int, interval_ms: int, nursery: Any) -> None:
    assert (
        apis_of(nursery)._heartbeat_response("g", HeartbeatResult(member_id="m", epoch=epoch)).heartbeat_interval_ms
        == interval_ms
    )


async def test_a_member_is_described_with_what_it_still_has_to_give_up(nursery: Any) -> None:
    apis = apis_of(nursery)
    [topic_id] = apis._image.topics_by_id
    current = CurrentAssignment(epoch=3, assigned={(topic_id, 1): 3}, revoking={(topic_id, 0): 2})
    described = apis._member(DescribedMember("m", MemberSubscription(topics=("t",)), current, ()), 1)
    assert [part.partitions for part in described.assignment.topic_partitions] == [[0, 1]]
    assert described.subscribed_topic_regex == "", "none, as Kafka writes it"
