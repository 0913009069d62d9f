"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

import pytest

from broker.apis.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetApis
from broker.net.connection import Slot
from broker.protocol.errors import ErrorCode
from broker.protocol.schema.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.brokers.one_broker import OneBroker, listed


def slot_of(version: int) -> Slot:
    conn: Any = None
    return Slot(conn, 1, version, False)


def epoch_end(room: OneBroker, asked: int, *, current: int = -1) -> Any:
    part = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=asked)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[part])])
    [topic] = OffsetApis(room.replicas).offset_for_leader_epoch(request, slot_of(4)).topics
    return topic.partitions[0]


def room_with(records: int, committed: int = 0) -> OneBroker:
    room = OneBroker()
    room.give()
    for _ in range(records):
        room.produce(room.client(), acks=1)
    for replica in (2, 3):
        room.follower_has(replica, committed)
    return room


def test_consumers_see_the_high_watermark_and_followers_the_logs_end() -> None:
    room = room_with(3, committed=1)
    assert listed(room, LATEST).offset == 1
    assert listed(room, LATEST, replica=2).offset == 3
    assert listed(room, EARLIEST).offset == 0


def test_latest_is_not_available_before_the_high_watermark_reaches_the_epochs_start() -> None:
    room = room_with(3, committed=1)
    room.give(epoch=6, partition_epoch=11)
    assert listed(room, LATEST).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert listed(room, LATEST, version=4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert listed(room, EARLIEST).error_code == ErrorCode.NONE
    assert listed(room, LATEST, replica=2).offset == 3


def test_a_timestamp_is_looked_for_below_the_high_watermark_only() -> None:
    room = room_with(1, committed=1)
    first_ms = room.env.wall_ms()
    room.pass_ms(100)
    room.produce(room.client(), acks=1)
    assert listed(room, first_ms).offset == 0
    assert listed(room, first_ms + 50).offset == -1
    assert listed(room, MAX_TIMESTAMP).timestamp == first_ms
    for replica in (2, 3):
        room.follower_has(replica, 2)
    assert listed(room, first_ms + 50).offset == 1


@pytest.mark.parametrize(
    ("epoch", "error"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH), (5, ErrorCode.NONE)]
)
def test_epochs_fence_questions_about_offsets(epoch: int, error: ErrorCode) -> None:
    room = room_with(1)
    assert listed(room, LATEST, epoch=epoch).error_code == error
    assert epoch_end(room, 5, current=epoch).error_code == error


def test_what_is_led_elsewhere_or_nowhere_is_told_apart() -> None:
    room = OneBroker()
    room.give("t", leader=2)
    room.give("u", leader=2, isr=(2,), replicas=(2,))
    assert listed(room, LATEST, name="t").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert listed(room, LATEST, name="u").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert listed(room, LATEST, name="w").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_epoch_ends_where_the_next_begins_and_the_last_at_the_logs_end() -> None:
    room = room_with(2)
    room.give(epoch=8, partition_epoch=11)
    room.produce(room.client(), acks=1)
    assert (epoch_end(room, 5).leader_epoch, epoch_end(room, 5).end_offset) == (5, 2)
    assert (epoch_end(room, 7).leader_epoch, epoch_end(room, 7).end_offset) == (5, 2)
    assert (epoch_end(room, 8).leader_epoch, epoch_end(room, 8).end_offset) == (8, 3)
    assert (epoch_end(room, 9).leader_epoch, epoch_end(room, 9).end_offset) == (-1, -1)
