"""ConsumerGroupHeartbeat's answer to a member that leaves (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.apis.consumer_groups import ConsumerGroupApis
from broker.apis.much import MuchTold
from broker.coordinators.groups.consumer.answers import Beaten
from broker.coordinators.groups.consumer.facts import LEAVES, LEAVES_FOR_NOW
from tests.support.brokers.coordinators import GroupBroker


@pytest.mark.parametrize(("epoch", "interval_ms"), [(3, 5_000), (LEAVES, 0), (LEAVES_FOR_NOW, 0)])
async def test_a_member_that_leaves_has_no_next_heartbeat(epoch: int, interval_ms: int, nursery: Any) -> None:
    broker = GroupBroker(nursery)
    apis = ConsumerGroupApis(broker.env, broker.image, broker.coordinator, broker.config, MuchTold(broker.env))
    assert apis._beaten("g", Beaten(member_id="m", epoch=epoch)).heartbeat_interval_ms == interval_ms
