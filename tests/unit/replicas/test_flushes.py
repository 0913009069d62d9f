"""Group commit (R14): with flush.messages no client hears of an append before its fsync, and no event loop waits."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.apis.offsets import LATEST
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.hosted_partition import HostedPartition
from tests.support.brokers.in_memory import MemoryBroker, answers, fetched, listed, produced
from tests.support.disks.batches import NEWEST, batch

ALONE: dict[str, Any] = {"isr": (1,), "replicas": (1,)}


class Disk(MemoryBroker):
    """A broker whose flushes end when the test says so."""

    def __init__(self, **properties: str) -> None:
        super().__init__(**{"log_flush_interval_messages": "1", **properties})
        self.nursery: trio.Nursery | None = None
        self.waiting: list[trio.Event] = []
        self.flushes = 0
        self.fails: OSError | None = None
        self.env.cpu = self._cpu  # type: ignore[method-assign]
        self.replicas.flushes.bind(self._start)

    def _start(self, function: Any, *args: Any) -> None:
        assert self.nursery is not None
        self.nursery.start_soon(function, *args)

    async def _cpu(self, fn: Callable[..., Any], *args: Any) -> Any:
        ended = trio.Event()
        self.waiting.append(ended)
        await ended.wait()
        if self.fails is not None:
            raise self.fails
        self.flushes += 1
        return fn(*args)

    async def sync(self) -> None:
        """End the flushes under way, with their consequences. Flushes that begin meanwhile wait for the next call."""
        await trio.testing.wait_all_tasks_blocked()
        under_way, self.waiting = self.waiting, []
        for ended in under_way:
            ended.set()
        await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def disk(**properties: str) -> AsyncIterator[Disk]:
    broker = Disk(**properties)
    with trio.fail_after(5):
        async with trio.open_nursery() as broker.nursery:
            yield broker
            broker.nursery.cancel_scope.cancel()


async def test_acks_1_is_answered_after_the_fsync() -> None:
    async with disk() as broker:
        h = broker.give()
        conn = broker.client()
        broker.produce(conn, acks=1)
        assert answers(conn) == []
        await broker.sync()
        assert produced(conn)[0].error_code == ErrorCode.NONE
        assert h.log.recovery_point == 1
        assert not h.unflushed


async def test_nobody_hears_of_an_append_before_its_fsync() -> None:
    async with disk() as broker:
        h = broker.give()
        waiting, consumer = broker.client(), broker.client()
        broker.fetch(waiting, ("t", 0), replica=2, epoch=5)
        broker.fetch(consumer, ("t", 0))
        broker.produce(broker.client())
        assert (h.log.log_end_offset, h.state.log_end_offset) == (1, 0)
        assert answers(waiting) == answers(consumer) == []
        assert not broker.follower_has(3, 0).records
        assert listed(broker, LATEST, replica=2).offset == 0
        await broker.sync()
        assert fetched(waiting).records
        assert listed(broker, LATEST, replica=2).offset == 1


async def test_a_lone_replica_commits_what_is_on_its_disk_and_no_more() -> None:
    async with disk() as broker:
        h = broker.give(**ALONE)
        conn = broker.client()
        broker.produce(conn)
        assert h.state.high_watermark == 0
        await broker.sync()
        assert h.state.high_watermark == 1
        assert produced(conn)[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("acks", [1, -1])
async def test_one_fsync_covers_all_that_came_before_it_began_and_answers_keep_their_order(acks: int) -> None:
    async with disk() as broker:
        h = broker.give(**ALONE)
        conn = broker.client()
        for _ in range(10):
            broker.produce(conn, acks=acks)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(5):
            broker.produce(conn, acks=acks)
        await broker.sync()
        assert [number for number, _ in answers(conn)] == list(range(1, 11))
        assert h.state.log_end_offset == 10
        await broker.sync()
        assert [number for number, _ in answers(conn)] == list(range(11, 16))
        assert broker.flushes == 2
        assert not h.flushing


async def test_a_duplicate_of_what_is_not_on_disk_yet_waits_for_it_too() -> None:
    async with disk() as broker:
        broker.give()
        again = broker.client()
        for conn in (broker.client(), again):
            broker.produce(conn, ("t", 0, broker.batch(pid=7, epoch=0, seq=0)), acks=1)
        assert answers(again) == []
        await broker.sync()
        assert (produced(again)[0].base_offset, broker.flushes) == (0, 1)


async def test_what_asks_for_no_flush_of_its_own_is_told_with_the_flush_under_way() -> None:
    async with disk(log_flush_interval_messages="3") as broker:
        h = broker.give()
        for told in (1, 2):
            broker.produce(broker.client(), acks=1)
            assert h.state.log_end_offset == told
        for _ in range(2):
            broker.produce(broker.client(), acks=1)
        assert h.state.log_end_offset == 2
        await broker.sync()
        assert (h.state.log_end_offset, h.log.recovery_point, broker.flushes) == (4, 4, 1)


async def test_without_the_setting_nothing_is_flushed() -> None:
    async with disk(log_flush_interval_messages=str(2**63 - 1)) as broker:
        h = broker.give()
        broker.produce(broker.client(), acks=1)
        await broker.sync()
        assert (h.state.log_end_offset, h.log.recovery_point, broker.flushes) == (1, 0, 0)


async def test_a_quiet_log_is_flushed_when_its_flush_ms_is_over() -> None:
    async with disk(log_flush_interval_messages="100", log_flush_interval_ms="500") as broker:
        h = broker.give()
        broker.produce(broker.client(), acks=1)
        broker.replicas.flush_by_time()
        await broker.sync()
        assert broker.flushes == 0
        broker.pass_ms(501)
        broker.replicas.flush_by_time()
        await broker.sync()
        assert (broker.flushes, h.log.recovery_point) == (1, 1)


async def test_nobody_waits_for_a_flush_that_only_flush_ms_asks_for() -> None:
    async with disk(log_flush_interval_messages="4", log_flush_interval_ms="500") as broker:
        h = broker.give()
        conn = broker.client()
        broker.pass_ms(501)
        for _ in range(2):
            broker.produce(conn, acks=1)
        await trio.testing.wait_all_tasks_blocked()
        assert (len(answers(conn)), h.state.log_end_offset, len(broker.waiting)) == (2, 2, 1)
        for _ in range(3):
            broker.produce(conn, acks=1)
        assert (len(answers(conn)), h.state.log_end_offset) == (1, 3)
        await broker.sync()
        assert (len(answers(conn)), h.state.log_end_offset, h.log.recovery_point) == (2, 5, 2)


async def test_a_follower_does_not_wait_for_one_either() -> None:
    async with disk(log_flush_interval_messages="100", log_flush_interval_ms="500") as broker:
        h = broker.give(leader=2)
        broker.pass_ms(501)
        h.log.append_as_follower(as_sent(1, 0), NEWEST)
        assert broker.replicas.followed(h, 1, 0) is None
        assert h.state.log_end_offset == 1
        await broker.sync()
        assert h.log.recovery_point == 1


async def test_who_leads_anew_has_nothing_pending_and_its_epoch_begins_at_the_logs_end() -> None:
    async with disk() as broker:
        h = broker.give(**ALONE)
        conn = broker.client()
        broker.produce(conn, acks=1)
        await trio.testing.wait_all_tasks_blocked()
        broker.give(epoch=6, partition_epoch=11, **ALONE)
        assert produced(conn)[0].error_code == ErrorCode.NONE
        assert (h.state.log_end_offset, h.state.epoch_start_offset, h.state.high_watermark) == (1, 1, 1)
        broker.produce(conn, acks=1)
        await broker.sync()
        await broker.sync()
        assert h.state.log_end_offset == 2
        assert produced(conn)[0].base_offset == 1


async def test_news_within_the_epoch_does_not_tell_what_is_pending() -> None:
    async with disk() as broker:
        h = broker.give()
        broker.produce(broker.client(), acks=1)
        broker.give(isr=(1, 2), partition_epoch=11)
        assert (h.state.log_end_offset, h.state.isr) == (0, (1, 2))
        await broker.sync()
        assert h.state.log_end_offset == 1


async def test_a_deleted_topics_producers_are_told_and_its_flush_is_forgotten() -> None:
    async with disk() as broker:
        broker.give()
        conn = broker.client()
        broker.produce(conn, acks=1)
        await trio.testing.wait_all_tasks_blocked()
        broker.remove("t")
        broker.server.settle()
        assert produced(conn)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker.fails = FileNotFoundError("its directory has another name now")
        await broker.sync()
        await broker.replicas.flushes.idle()


async def test_a_disk_that_fails_ends_the_node_and_acknowledges_nothing() -> None:
    conn = None
    with pytest.raises(ExceptionGroup) as ended:
        async with disk() as broker:
            broker.give()
            conn = broker.client()
            broker.produce(conn, acks=1)
            broker.fails = OSError(5, "EIO")
            await broker.sync()
    assert ended.group_contains(OSError, match="EIO")
    assert conn is not None
    assert answers(conn) == []


async def test_a_stop_waits_for_the_flushes_under_way() -> None:
    async with disk() as broker:
        broker.give()
        broker.give("u")
        for name in ("t", "u"):
            broker.produce(broker.client(), (name, 0, broker.batch()), acks=1)
        idle = trio.Event()

        async def stop() -> None:
            await broker.replicas.flushes.idle()
            idle.set()

        assert broker.nursery is not None
        broker.nursery.start_soon(stop)
        await trio.testing.wait_all_tasks_blocked()
        assert not idle.is_set()
        await broker.sync()
        assert idle.is_set()


def as_sent(count: int, base: int) -> memoryview:
    return batch(count, base=base, leader_epoch=5)


async def follow(broker: Disk, h: HostedPartition, base: int, count: int = 1) -> list[bool]:
    """Append as a fetcher does; what is returned becomes true when it may fetch on."""
    h.log.append_as_follower(as_sent(count, base), NEWEST)
    held = broker.replicas.followed(h, base + count, 0)
    assert held is not None
    done = [False]

    async def flush() -> None:
        await broker.replicas.flush_followed([held])
        done[0] = True

    assert broker.nursery is not None
    broker.nursery.start_soon(flush)
    await trio.testing.wait_all_tasks_blocked()
    return done


async def test_a_follower_takes_note_of_what_it_fetched_once_it_is_on_disk() -> None:
    async with disk() as broker:
        h = broker.give(leader=2)
        done = await follow(broker, h, 0, 3)
        assert (h.state.log_end_offset, h.state.high_watermark, done[0]) == (0, 0, False)
        await broker.sync()
        assert (h.state.log_end_offset, h.state.high_watermark, done[0]) == (3, 3, True)
        assert h.log.recovery_point == 3


async def test_what_a_follower_was_told_in_an_epoch_that_is_over_is_not_taken_note_of() -> None:
    async with disk() as broker:
        h = broker.give(leader=2)
        done = await follow(broker, h, 0)
        broker.give(leader=1, epoch=6, partition_epoch=11)
        assert (h.state.log_end_offset, h.state.is_leader) == (1, True)
        await broker.sync()
        assert done[0]
        assert h.state.high_watermark == 0


async def test_a_truncation_ends_the_wait_for_what_it_cut() -> None:
    async with disk() as broker:
        h = broker.give(leader=2)
        done = await follow(broker, h, 0, 1)
        h.log.truncate_to(0)
        await broker.sync()
        assert done[0]
        assert (h.state.log_end_offset, h.log.log_end_offset) == (0, 0)


@pytest.mark.parametrize("flush_messages", [1, 2])
async def test_what_a_crash_has_left_without_its_fsync_counts_no_sooner_than_it_is_durable(flush_messages: int) -> None:
    properties = {"log_flush_interval_messages": str(flush_messages)}
    async with disk(**properties) as broker:
        h = broker.give(**ALONE)
        for _ in range(flush_messages):
            broker.produce(broker.client())
        assert (h.log.log_end_offset, h.log.recovery_point) == (flush_messages, 0)
    after = MemoryBroker(fs=broker.fs.after_crash(), **properties)
    h = after.give(epoch=6, **ALONE)
    assert h.state.high_watermark == flush_messages
    assert h.log.recovery_point == flush_messages
    for seed in range(20):
        left = MemoryBroker(fs=after.fs.after_crash(random.Random(seed)), **properties)
        assert left.give(epoch=7, **ALONE).state.log_end_offset == flush_messages


async def test_nothing_is_flushed_as_a_log_is_taken_up_where_nobody_asks_for_it() -> None:
    broker = MemoryBroker()
    h = broker.give(**ALONE)
    broker.produce(broker.client())
    after = MemoryBroker(fs=broker.fs.after_crash())
    flushed = after.fs.log.count("fsync")
    h = after.give(epoch=6, **ALONE)
    assert (h.state.log_end_offset, h.log.recovery_point) == (1, 0)
    assert after.fs.log.count("fsync") == flushed
