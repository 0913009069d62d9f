"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from squall.broker.apis.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetApis
from squall.broker.log.lookups import HEADERS_A_TURN
from squall.broker.net.connection import PendingResponse
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import Record, encode_batch
from squall.broker.protocol.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from squall.broker.protocol.schema.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.brokers.in_memory import MemoryBroker, listed


def slot_of(version: int) -> PendingResponse:
    conn: Any = None
    return PendingResponse(conn, 1, version, False)


def epoch_end(broker: MemoryBroker, asked: int, *, current: int = -1) -> Any:
    part = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=asked)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[part])])
    [topic] = OffsetApis(broker.replicas, broker.unpacking).offset_for_leader_epoch(request, slot_of(4)).topics
    return topic.partitions[0]


def broker_with(records: int, committed: int = 0) -> MemoryBroker:
    broker = MemoryBroker()
    broker.give()
    for _ in range(records):
        broker.produce(broker.client(), acks=1)
    for replica in (2, 3):
        broker.follower_has(replica, committed)
    return broker


def test_consumers_see_the_high_watermark_and_followers_the_logs_end() -> None:
    broker = broker_with(3, committed=1)
    assert listed(broker, LATEST).offset == 1
    assert listed(broker, LATEST, replica=2).offset == 3
    assert listed(broker, EARLIEST).offset == 0


def test_latest_is_not_available_before_the_high_watermark_reaches_the_epochs_start() -> None:
    broker = broker_with(3, committed=1)
    broker.give(epoch=6, partition_epoch=11)
    assert listed(broker, LATEST).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert listed(broker, LATEST, version=4).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert listed(broker, EARLIEST).error_code == ErrorCode.NONE
    assert listed(broker, LATEST, replica=2).offset == 3


def test_a_timestamp_is_looked_for_below_the_high_watermark_only() -> None:
    broker = broker_with(1, committed=1)
    first_ms = broker.env.wall_ms()
    broker.pass_ms(100)
    broker.produce(broker.client(), acks=1)
    assert listed(broker, first_ms).offset == 0
    assert listed(broker, first_ms + 50).offset == -1
    assert listed(broker, MAX_TIMESTAMP).timestamp == first_ms
    for replica in (2, 3):
        broker.follower_has(replica, 2)
    assert listed(broker, first_ms + 50).offset == 1


def request_for(*timestamps: int) -> ListOffsetsRequest:
    parts = [ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in timestamps]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=parts)])


def broker_with_a_packed_batch() -> tuple[MemoryBroker, int]:
    """Return a broker, and the timestamp of the second of three records in one compressed batch."""
    broker = MemoryBroker()
    broker.give()
    now = broker.env.wall_ms()
    packed = encode_batch([Record(n, now + n, None, b"v") for n in range(3)], codec=1)
    broker.produce(broker.client(), ("t", 0, packed), acks=1)
    for replica in (2, 3):
        broker.follower_has(replica, 3)
    return broker, now + 1


def test_a_packed_batch_is_searched_off_the_event_loop_and_holds_what_follows_on_its_connection() -> None:
    broker, second_ms = broker_with_a_packed_batch()
    apis = OffsetApis(broker.replicas, broker.unpacking)
    slot = broker.slot(broker.client(), ApiKey.LIST_OFFSETS, 7)
    for timestamp, offset in ((second_ms, 1), (MAX_TIMESTAMP, 2)):
        later = apis.list_offsets(request_for(timestamp), slot)
        assert isinstance(later, DeferredResponse)
        assert later.holds
        [part] = trio.run(later.wait).topics[0].partitions
        assert (part.error_code, part.offset) == (0, offset)
    for timestamp in (LATEST, EARLIEST):
        assert not isinstance(apis.list_offsets(request_for(timestamp), slot), DeferredResponse)


def test_a_partition_that_is_named_twice_is_refused_in_one_row_and_others_are_answered() -> None:
    """As Apache Kafka answers: its clients never ask so."""
    broker = broker_with(2)
    parts = [ListOffsetsPartition(partition_index=index, timestamp=EARLIEST) for index in (0, 1, 0)]
    topics = [ListOffsetsTopic(name="t", partitions=parts), ListOffsetsTopic(name="t", partitions=parts[:1])]
    slot = broker.slot(broker.client(), ApiKey.LIST_OFFSETS, 7)
    answer: Any = OffsetApis(broker.replicas, broker.unpacking).list_offsets(
        ListOffsetsRequest(replica_id=-1, topics=topics), slot
    )
    [topic] = answer.topics
    assert [(part.partition_index, part.error_code) for part in topic.partitions] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("asked", [10**15, MAX_TIMESTAMP])
def test_others_have_a_turn_while_many_headers_are_walked_over(asked: int, isolation: int) -> None:
    """Only the last batch is uncommitted, so the segment cannot be skipped as a whole."""
    broker = broker_with(2 * HEADERS_A_TURN + 10)
    for replica in (2, 3):
        broker.follower_has(replica, 2 * HEADERS_A_TURN + 9)
    h = broker.replicas.by_name[b"t"][0]
    h.log.segments[0].max_timestamp = 10**15
    parts = [ListOffsetsPartition(partition_index=0, timestamp=asked)]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name="t", partitions=parts)]
    )
    slot = broker.slot(broker.client(), ApiKey.LIST_OFFSETS, 7)
    later = OffsetApis(broker.replicas, broker.unpacking).list_offsets(request, slot)
    assert isinstance(later, DeferredResponse)
    turns = 0

    async def wait() -> Any:
        nonlocal turns
        answers: list[Any] = []

        async def answer() -> None:
            answers.append(await later.wait())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer)
            while not answers:
                await trio.lowlevel.checkpoint()
                turns += 1
        return answers[0]

    [part] = trio.run(wait).topics[0].partitions
    assert part.error_code == ErrorCode.NONE
    assert (part.offset >= 0) == (asked == MAX_TIMESTAMP)
    assert turns >= 2


def test_a_leader_that_is_replaced_while_it_searches_does_not_answer() -> None:
    broker, second_ms = broker_with_a_packed_batch()
    slot = broker.slot(broker.client(), ApiKey.LIST_OFFSETS, 7)
    later = OffsetApis(broker.replicas, broker.unpacking).list_offsets(request_for(second_ms), slot)
    assert isinstance(later, DeferredResponse)
    broker.give(leader=2, epoch=6, partition_epoch=11)
    [part] = trio.run(later.wait).topics[0].partitions
    assert (part.error_code, part.offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.parametrize(("timestamp", "since"), [(MAX_TIMESTAMP, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_special_timestamps_are_known_from_their_versions_on(timestamp: int, since: int) -> None:
    broker = broker_with(1, committed=1)
    assert listed(broker, timestamp, version=since).error_code == ErrorCode.NONE
    assert listed(broker, timestamp, version=since - 1).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert listed(broker, -7, version=11).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_nothing_is_in_tiered_storage_or_on_its_way_there() -> None:
    broker = broker_with(3, committed=1)
    for timestamp in (-5, -6):
        part = listed(broker, timestamp, version=11)
        assert (part.error_code, part.timestamp, part.offset) == (ErrorCode.NONE, -1, -1)


@pytest.mark.parametrize(
    ("epoch", "error"), [(4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH), (5, ErrorCode.NONE)]
)
def test_epochs_fence_questions_about_offsets(epoch: int, error: ErrorCode) -> None:
    broker = broker_with(1)
    assert listed(broker, LATEST, epoch=epoch).error_code == error
    assert epoch_end(broker, 5, current=epoch).error_code == error


def test_what_is_led_elsewhere_or_nowhere_is_told_apart() -> None:
    broker = MemoryBroker()
    broker.give("t", leader=2)
    broker.give("u", leader=2, isr=(2,), replicas=(2,))
    assert listed(broker, LATEST, name="t").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert listed(broker, LATEST, name="u").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert listed(broker, LATEST, name="w").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_epoch_ends_where_the_next_begins_and_the_last_at_the_logs_end() -> None:
    broker = broker_with(2)
    broker.give(epoch=8, partition_epoch=11)
    broker.produce(broker.client(), acks=1)
    assert (epoch_end(broker, 5).leader_epoch, epoch_end(broker, 5).end_offset) == (5, 2)
    assert (epoch_end(broker, 7).leader_epoch, epoch_end(broker, 7).end_offset) == (5, 2)
    assert (epoch_end(broker, 8).leader_epoch, epoch_end(broker, 8).end_offset) == (8, 3)
    assert (epoch_end(broker, 9).leader_epoch, epoch_end(broker, 9).end_offset) == (-1, -1)


@pytest.mark.parametrize("replica_id", [0, 2, -1])
def test_clients_are_not_told_what_only_followers_are(replica_id: int) -> None:
    broker = MemoryBroker()
    broker.give()
    broker.produce(broker.client())
    part = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsTopic(name="t", partitions=[part])])
    slot = broker.slot(broker.client(), ApiKey.LIST_OFFSETS, 7)
    answer = OffsetApis(broker.replicas, broker.unpacking).list_offsets_to_clients(request, slot)
    assert isinstance(answer, ListOffsetsResponse)
    assert answer.topics[0].partitions[0].offset == 0, "nothing is committed"
