"""DeleteRecords: which records may be deleted, which replicas it waits for, and its effect after a restart."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from squall.broker.apis.delete_records import DeleteRecordsApi
from squall.broker.apis.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from squall.broker.net.connection import Connection
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.support.brokers.in_memory import MemoryBroker, fetched, listed

pytestmark = pytest.mark.usefixtures("autojump_clock")
TOPIC = 2


def broker_with(
    records: int, *, isr: tuple[int, ...] = (1, 2, 3), replicas: tuple[int, ...] = (1, 2, 3)
) -> MemoryBroker:
    """Return a broker that leads topic t, with so many committed batches of one record."""
    broker = MemoryBroker()
    broker.give(isr=isr, replicas=replicas)
    for _ in range(records):
        broker.produce(broker.client(), acks=1)
    for replica in replicas[1:]:
        broker.follower_has(replica, records)
    return broker


async def delete(
    broker: MemoryBroker, offset: int, *, name: str = "t", timeout_ms: int = 1000, conn: Connection | None = None
) -> DeleteRecordsPartitionResult:
    slot = broker.slot(conn or broker.client(), ApiKey.DELETE_RECORDS, 2)
    asked = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    request = DeleteRecordsRequest(topics=[asked], timeout_ms=timeout_ms)
    response = DeleteRecordsApi(broker.env, broker.replicas).delete_records(request, slot)
    if isinstance(response, DeferredResponse):
        response = await response.wait()
    [[part]] = [topic.partitions for topic in response.topics]
    return part


async def test_a_lone_replica_deletes_at_once() -> None:
    broker = broker_with(4, isr=(1,), replicas=(1,))
    part = await delete(broker, 3, timeout_ms=0)
    assert (part.error_code, part.low_watermark) == (ErrorCode.NONE, 3)
    [h] = broker.replicas.hosted()
    assert h.log.log_start_offset == h.state.log_start_offset == 3
    assert not h.deletions


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
async def test_nobody_deletes_what_a_coordinator_will_read(name: str) -> None:
    broker = MemoryBroker()
    h = broker.give(name, topic_id=bytes(15) + b"\x09", isr=(1,), replicas=(1,))
    assert "delete" in h.log.config.cleanup_policy, "as somebody has altered it"
    assert (await delete(broker, -1, name=name)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_the_answer_waits_until_the_followers_have_told_that_they_deleted_too() -> None:
    broker = broker_with(4)
    found: list[DeleteRecordsPartitionResult] = []
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            found.append(await delete(broker, 3))

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert broker.follower_has(2, 4, log_start=0).log_start_offset == 3, "so it hears of it"
        broker.follower_has(2, 4, log_start=3)
        broker.follower_has(3, 4, log_start=1)
        await trio.testing.wait_all_tasks_blocked()
        assert not found
        broker.follower_has(3, 4, log_start=3)
    assert (found[0].error_code, found[0].low_watermark) == (ErrorCode.NONE, 3)


async def test_a_parked_followers_fetch_is_answered_so_that_it_hears_of_the_new_start() -> None:
    broker = broker_with(4)
    conn = broker.client()
    broker.fetch(conn, ("t", 4), replica=2, epoch=5)
    await delete(broker, 2, timeout_ms=0)
    assert fetched(conn).log_start_offset == 2


async def test_who_does_not_delete_in_time_is_told_as_a_time_out_and_the_records_are_gone_here() -> None:
    broker = broker_with(4)
    part = await delete(broker, -1)
    assert (part.error_code, part.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    [h] = broker.replicas.hosted()
    assert h.log.log_start_offset == 4
    assert not h.deletions


async def test_a_fenced_follower_is_not_waited_for() -> None:
    broker = broker_with(4)
    found: list[DeleteRecordsPartitionResult] = []
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            found.append(await delete(broker, 3))

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        broker.follower_has(2, 4, log_start=3)
        broker.fence(3)
    assert (found[0].error_code, found[0].low_watermark) == (ErrorCode.NONE, 3)


async def test_who_waits_is_told_when_the_leadership_is_lost() -> None:
    broker = broker_with(4)
    async with trio.open_nursery() as nursery:

        async def ask() -> None:
            part = await delete(broker, 3)
            assert (part.error_code, part.low_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        broker.give(leader=2, epoch=6, partition_epoch=11)


async def test_nobody_waits_for_a_client_that_hung_up() -> None:
    broker = broker_with(4)
    conn = broker.client()
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: delete(broker, 3, timeout_ms=2**31 - 1, conn=conn))
            await trio.testing.wait_all_tasks_blocked()
            conn.close()
    assert not broker.replicas.hosted()[0].deletions


async def test_what_is_not_committed_cannot_be_deleted() -> None:
    broker = MemoryBroker()
    broker.give()
    broker.produce(broker.client(), acks=1)
    part = await delete(broker, 1)
    assert (part.error_code, part.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert broker.replicas.hosted()[0].log.log_start_offset == 0


async def test_only_the_leader_deletes_and_only_what_exists() -> None:
    broker = MemoryBroker()
    broker.give(leader=2)
    broker.give("u", leader=2, replicas=(2, 3), isr=(2, 3))
    assert (await delete(broker, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await delete(broker, 0, name="u")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await delete(broker, 0, name="x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_is_compacted_only_keeps_its_records() -> None:
    broker = broker_with(4)
    broker.alter(TOPIC, "t", cleanup_policy="compact")
    assert (await delete(broker, 2)).error_code == ErrorCode.POLICY_VIOLATION
    broker.alter(TOPIC, "t", cleanup_policy="compact,delete")
    assert (await delete(broker, 2, timeout_ms=0)).error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_deleting_what_is_gone_already_is_no_error_and_moves_nothing_back() -> None:
    broker = broker_with(4, isr=(1,), replicas=(1,))
    await delete(broker, 3)
    part = await delete(broker, 1)
    assert (part.error_code, part.low_watermark) == (ErrorCode.NONE, 3)


async def test_deleted_records_stay_deleted_after_a_crash() -> None:
    broker = broker_with(4, isr=(1,), replicas=(1,))
    await delete(broker, 3)
    again = MemoryBroker(fs=broker.fs.after_crash())
    h = again.give(isr=(1,), replicas=(1,), epoch=6, partition_epoch=11)
    assert (h.log.log_start_offset, h.log.log_end_offset, h.state.high_watermark) == (3, 4, 4)


async def test_what_is_deleted_is_out_of_range_and_not_found_by_time() -> None:
    broker = broker_with(4, isr=(1,), replicas=(1,))
    await delete(broker, 4)
    conn = broker.client()
    broker.fetch(conn, ("t", 3))
    assert fetched(conn).error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert [listed(broker, what).offset for what in (EARLIEST, LATEST, MAX_TIMESTAMP, 0)] == [4, 4, -1, -1]
    assert not any(listed(broker, what).error_code for what in (EARLIEST, LATEST, MAX_TIMESTAMP, 0))


async def test_the_segments_below_the_new_start_go_with_the_next_check() -> None:
    broker = MemoryBroker()
    broker.alter(TOPIC, "t", segment_bytes="100", retention_ms="-1")
    h = broker.give(isr=(1,), replicas=(1,))
    for _ in range(4):
        broker.produce(broker.client(), acks=1)
    await delete(broker, 3)
    assert len(h.log.segments) == 4
    list(broker.replicas.retain(broker.env.wall_ms()))
    assert [segment.base_offset for segment in h.log.segments] == [3]
    assert h.log.log_start_offset == h.state.log_start_offset == 3


async def test_a_start_inside_of_a_batch_is_served_from_that_batch_on() -> None:
    broker = MemoryBroker()
    broker.give(isr=(1,), replicas=(1,))
    broker.produce(broker.client(), ("t", 0, broker.batch(5)), acks=1)
    await delete(broker, 3)
    conn = broker.client()
    broker.fetch(conn, ("t", 3))
    part = fetched(conn)
    assert (part.error, part.log_start_offset) == (ErrorCode.NONE, 3)
    assert bytes(part.records)[:8] == bytes(8), "its batch begins at offset 0"
