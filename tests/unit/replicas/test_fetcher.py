"""Followers: what is asked, what of an answer is applied, and when the connection is made anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from squall.broker.apis.offsets import EARLIEST
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.header import decode_request_header, encode_response_header
from squall.broker.protocol.hot import FetchIn, FetchResponsePartition, decode_fetch, encode_fetch_response
from squall.broker.protocol.schema.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from squall.broker.replicas.fetcher import AGAIN_MS, SHORT_WAIT_MS, Fetcher, ReplicaFetcherManager
from squall.broker.replicas.hosted_partition import HostedPartition
from tests.support.brokers.in_memory import IDS, MemoryBroker
from tests.support.brokers.memory_env import FakeEnv, MemoryTransport, Pipe
from tests.support.disks.batches import batch


class Leader:
    """Broker 2, simulated by the test: it reads one request at a time, from the newest connection."""

    def __init__(self) -> None:
        self.links: list[MemoryTransport] = []
        self.log = (0, 0)
        """The start and end offset that ListOffsets returns."""
        self.asked_offsets = 0
        self._version = self._correlation_id = 0

    def connect(self, host: str, port: int) -> MemoryTransport:
        there, back = Pipe(1 << 30), Pipe(1 << 30)
        self.links.append(MemoryTransport("follower:1", there, back))
        return MemoryTransport("leader:2", back, there)

    async def request(self) -> FetchIn:
        """The next Fetch."""
        with trio.fail_after(60):
            while not self.links:
                await trio.lowlevel.checkpoint()
            header = await self._read(4)
            frame = memoryview(await self._read(int.from_bytes(header, "big")))
        head = decode_request_header(frame)
        assert head.api_key == ApiKey.FETCH
        self._version, self._correlation_id = head.api_version, head.correlation_id
        return decode_fetch(frame, head.body, head.api_version)

    async def _read(self, size: int) -> bytes:
        buffer, at = memoryview(bytearray(size)), 0
        while at < size:
            link = self.links[-1]
            await link.wait_readable()
            at += link.recv_into(buffer[at:]) or 0
        return bytes(buffer)

    def answer(self, *parts: tuple[str, FetchResponsePartition]) -> None:
        """The response to the last request."""
        topics = [(IDS[name], [part]) for name, part in parts]
        body = b"".join(bytes(c) for c in encode_fetch_response(self._version, 0, 0, 0, topics, []))
        frame = encode_response_header(ApiKey.FETCH, self._version, self._correlation_id) + body
        self.links[-1].send((len(frame).to_bytes(4, "big") + frame,))

    async def offsets(self, node_id: int, key: int, version: int, request: Any, *, timeout_ms: int) -> Any:
        """Replaces PeerClient.request, for ListOffsets."""
        self.asked_offsets += 1
        [topic] = request.topics
        [part] = topic.partitions
        offset = self.log[0] if part.timestamp == EARLIEST else self.log[1]
        found = ListOffsetsPartitionResponse(partition_index=part.partition_index, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=[found])])


class Peers:
    """PeerClient with one peer."""

    def __init__(self, leader: Leader) -> None:
        self.request = leader.offsets


class Follower:
    """Broker 1, which fetches from `Leader`."""

    def __init__(self, nursery: trio.Nursery, **properties: str) -> None:
        self.broker = MemoryBroker(**properties)
        self.leader = Leader()
        self.env = FakeEnv(self.leader)
        peers: Any = Peers(self.leader)
        self.fetchers = ReplicaFetcherManager(
            self.env, self.broker.config, peers, lambda node: ("leader", 1), lambda: 101
        )
        self.fetchers.bind(self.broker.replicas, nursery)
        self.broker.replicas._fetchers = self.fetchers
        self.broker.replicas.bind(nursery.start_soon)

    def give(self, name: str = "t", *, epoch: int = 5) -> HostedPartition:
        return self.broker.give(name, leader=2, epoch=epoch, partition_epoch=epoch + 5)

    @property
    def fetcher(self) -> Fetcher:
        return self.fetchers._fetchers[2]


@asynccontextmanager
async def following(**properties: str) -> AsyncIterator[Follower]:
    async with trio.open_nursery() as nursery:
        yield Follower(nursery, **properties)
        nursery.cancel_scope.cancel()


def sent(base: int, count: int = 1, epoch: int = 5) -> bytes:
    return bytes(batch(count, base=base, leader_epoch=epoch))


def part_of(request: FetchIn, name: str = "t") -> tuple[int, int, int]:
    """(leader epoch, offset, last fetched epoch) as asked."""
    [part] = dict(request.topics)[IDS[name]]
    return part[1], part[2], part[3]


async def test_what_is_fetched_is_appended_and_the_next_fetch_acknowledges_it(autojump_clock: Any) -> None:
    async with following() as it:
        h = it.give()
        assert part_of(await it.leader.request()) == (5, 0, -1)
        it.leader.answer(("t", FetchResponsePartition(0, high_watermark=1, log_start_offset=0, records=sent(0, 2))))
        assert part_of(await it.leader.request()) == (5, 2, 5)
        assert (h.log.log_end_offset, h.state.high_watermark) == (2, 1)


async def test_what_has_to_be_flushed_is_acknowledged_once_it_is_on_disk(autojump_clock: Any) -> None:
    async with following(log_flush_interval_messages="1") as it:
        h = it.give()
        request = it.broker.env.cpu
        on_disk: list[int] = []

        async def slow(fn: Any, *args: Any) -> Any:
            await trio.sleep(3)
            on_disk.append(h.state.log_end_offset)
            return await request(fn, *args)

        it.broker.env.cpu = slow  # type: ignore[method-assign]
        await it.leader.request()
        it.leader.answer(("t", FetchResponsePartition(0, high_watermark=1, log_start_offset=0, records=sent(0, 2))))
        assert part_of(await it.leader.request()) == (5, 2, 5)
        assert on_disk == [0]
        assert (h.log.recovery_point, h.state.log_end_offset, h.state.high_watermark) == (2, 2, 1)


async def test_an_answer_of_an_earlier_epoch_is_not_applied(autojump_clock: Any) -> None:
    async with following() as it:
        h = it.give()
        await it.leader.request()
        asked = {(IDS["t"], 0): (it.fetcher.following[IDS["t"], 0], 0)}
        it.give(epoch=6)
        it.fetcher._apply(FetchResponsePartition(0, high_watermark=1, records=memoryview(sent(0))), *asked[IDS["t"], 0])
        assert h.log.log_end_offset == 0


async def test_an_answer_that_does_not_continue_the_log_is_not_applied(autojump_clock: Any) -> None:
    async with following() as it:
        h = it.give()
        await it.leader.request()
        f = it.fetcher.following[IDS["t"], 0]
        part = FetchResponsePartition(0, high_watermark=1, log_start_offset=0, records=memoryview(sent(0)))
        it.fetcher._apply(part, f, 0)
        it.fetcher._apply(part, f, 0)
        assert h.log.log_end_offset == 1


async def test_corrupt_records_are_not_appended_and_asked_for_again(autojump_clock: Any) -> None:
    async with following() as it:
        h = it.give()
        await it.leader.request()
        bad = bytearray(sent(0))
        bad[-1] ^= 1
        it.leader.answer(("t", FetchResponsePartition(0, high_watermark=1, log_start_offset=0, records=bytes(bad))))
        assert part_of(await it.leader.request()) == (5, 0, -1)
        assert h.log.log_end_offset == 0
        assert "bad_records" in [event for event, _ in it.env.traces]


async def test_what_a_leader_sends_of_an_epoch_that_it_was_not_asked_in_is_left_out(autojump_clock: Any) -> None:
    """KAFKA-18723: its log was truncated and went on under another leader while the answer was on its way out."""
    async with following() as it:
        h = it.give()
        await it.leader.request()
        later = sent(1, epoch=6)
        it.leader.answer(
            ("t", FetchResponsePartition(0, high_watermark=2, log_start_offset=0, records=sent(0) + later))
        )
        assert part_of(await it.leader.request())[:2] == (5, 1)
        assert (h.log.log_end_offset, h.state.high_watermark) == (1, 1)
        it.leader.answer(("t", FetchResponsePartition(0, high_watermark=2, log_start_offset=0, records=later)))
        assert part_of(await it.leader.request())[:2] == (5, 1)
        assert h.log.epochs.entries == [(5, 0)]
        assert "bad_records" in [event for event, _ in it.env.traces]


async def test_a_diverging_answer_truncates_and_asks_again_from_there(autojump_clock: Any) -> None:
    async with following() as it:
        h = it.give()
        await it.leader.request()
        it.leader.answer(
            ("t", FetchResponsePartition(0, high_watermark=1, log_start_offset=0, records=sent(0) + sent(1)))
        )
        await it.leader.request()
        it.leader.answer(
            ("t", FetchResponsePartition(0, high_watermark=1, log_start_offset=0, records=b"", diverging=(5, 1)))
        )
        assert part_of(await it.leader.request()) == (5, 1, 5)
        assert h.log.log_end_offset == h.state.log_end_offset == 1


async def test_before_kip_101_a_follower_cut_its_log_at_its_high_watermark_and_sent_no_epoch(
    autojump_clock: Any,
) -> None:
    async with following(squall_replication_truncation="high-watermark") as it:
        h = it.give()
        await it.leader.request()
        records = sent(0) + sent(1)
        it.leader.answer(("t", FetchResponsePartition(0, high_watermark=1, log_start_offset=0, records=records)))
        assert part_of(await it.leader.request()) == (5, 2, -1)
        it.give(epoch=6)
        assert part_of(await it.leader.request()) == (6, 1, -1)
        assert h.log.log_end_offset == 1


async def test_a_log_that_ends_before_the_leaders_begins_is_begun_anew_there(autojump_clock: Any) -> None:
    async with following() as it:
        h = it.give()
        it.leader.log = (40, 50)
        await it.leader.request()
        it.leader.answer(("t", FetchResponsePartition(0, ErrorCode.OFFSET_OUT_OF_RANGE)))
        while h.log.log_end_offset != 40:
            await trio.testing.wait_all_tasks_blocked()
        assert h.log.log_start_offset == h.state.log_start_offset == 40


async def test_a_log_that_is_longer_than_the_leaders_is_cut_where_that_ends(autojump_clock: Any) -> None:
    async with following() as it:
        h = it.give()
        it.leader.log = (0, 1)
        await it.leader.request()
        it.leader.answer(
            ("t", FetchResponsePartition(0, high_watermark=0, log_start_offset=0, records=sent(0) + sent(1)))
        )
        await it.leader.request()
        it.leader.answer(("t", FetchResponsePartition(0, ErrorCode.OFFSET_OUT_OF_RANGE)))
        await trio.testing.wait_all_tasks_blocked()
        assert h.log.log_end_offset == 1


async def test_a_leader_is_asked_for_its_bounds_once_at_a_time(autojump_clock: Any) -> None:
    async with following() as it:
        it.give()
        answered = trio.Event()

        async def slow(*args: Any, **named: Any) -> Any:
            await answered.wait()
            raise OSError("too late")

        it.fetcher._peers.request = slow  # type: ignore[method-assign]
        f = it.fetcher.following[IDS["t"], 0]
        started: list[Any] = []
        it.fetcher._start_soon = lambda *task: started.append(task)
        refused = FetchResponsePartition(0, ErrorCode.OFFSET_OUT_OF_RANGE)
        it.fetcher._apply(refused, f, 0)
        it.fetcher._apply(refused, f, 0)
        assert len(started) == 1
        answered.set()
        await started[0][0](*started[0][1:])
        it.fetcher._apply(refused, f, 0)
        assert len(started) == 2


QUIET = FetchResponsePartition(0, high_watermark=0, log_start_offset=0, records=b"")


async def test_a_partition_that_is_added_does_not_wait_out_the_fetch_under_way(autojump_clock: Any) -> None:
    async with following() as it:
        it.give("t")
        assert (await it.leader.request()).max_wait_ms == it.broker.config.replica_fetch_wait_max_ms
        it.give("u")
        while len(it.leader.links) < 2:
            await trio.lowlevel.checkpoint()
        request = await it.leader.request()
        assert request.max_wait_ms == it.broker.config.replica_fetch_wait_max_ms
        assert {key for key, _ in request.topics} == {IDS["t"], IDS["u"]}


async def test_partitions_that_are_added_one_after_the_other_end_no_fetch_of_each_other(autojump_clock: Any) -> None:
    """A topic of 1,000 partitions kept a follower from acknowledging anything for nine seconds: each turn in which logs
    were made ended the Fetch of the turn before.
    """
    async with following() as it:
        it.give("t")
        await it.leader.request()
        for links, name in ((2, "u"), (3, "v")):
            it.give(name)
            while len(it.leader.links) < links:
                await trio.lowlevel.checkpoint()
            request = await it.leader.request()
        assert request.max_wait_ms == SHORT_WAIT_MS
        it.give("w")
        await trio.testing.wait_all_tasks_blocked()
        assert len(it.leader.links) == 3
        it.leader.answer(
            ("t", FetchResponsePartition(0, high_watermark=0, log_start_offset=0, records=sent(0))), ("u", QUIET)
        )
        request = await it.leader.request()
        assert request.max_wait_ms == SHORT_WAIT_MS
        assert part_of(request, "t")[1] == 1
        assert part_of(request, "w")[1] == 0
        await it.env.sleep(AGAIN_MS / 1000)
        it.leader.answer(("t", QUIET))
        assert (await it.leader.request()).max_wait_ms == it.broker.config.replica_fetch_wait_max_ms


async def test_a_partition_that_begins_anew_under_way_is_asked_for_in_a_new_session(autojump_clock: Any) -> None:
    """Check that a new session is made: what the leader has sent of the partition before, it does not send again in the
    same one.
    """
    async with following() as it:
        it.give("t")
        await it.leader.request()
        it.give("t", epoch=6)
        while len(it.leader.links) < 2:
            await trio.lowlevel.checkpoint()
        assert part_of(await it.leader.request())[0] == 6


async def test_a_refused_partition_pauses_and_the_others_go_on(autojump_clock: Any) -> None:
    async with following() as it:
        it.give("t")
        it.give("u")
        await it.leader.request()
        quiet = FetchResponsePartition(0, high_watermark=0, log_start_offset=0, records=b"")
        it.leader.answer(("t", FetchResponsePartition(0, ErrorCode.UNKNOWN_LEADER_EPOCH)), ("u", quiet))
        assert [key for key, _ in (await it.leader.request()).topics] == [IDS["u"]]


async def test_a_new_connection_is_not_blamed_for_the_silence_of_the_old_one(autojump_clock: Any) -> None:
    async with following() as it:
        it.give()
        await it.leader.request()
        it.fetcher._sent_ms = 7
        it.fetcher.following[IDS["t"], 0].not_before_ms = 1 << 60
        it.leader.links[-1].close()
        while len(it.leader.links) < 2:
            await it.env.sleep(0.1)
        assert it.fetcher._sent_ms == 0


async def test_nothing_is_taken_after_fetching_was_stopped(autojump_clock: Any) -> None:
    async with following() as it:
        h = it.give()
        await it.leader.request()
        it.leader.answer(("t", FetchResponsePartition(0, high_watermark=1, log_start_offset=0, records=sent(0))))
        it.fetchers.stop()
        it.give("u")
        await trio.testing.wait_all_tasks_blocked()
        assert h.log.log_end_offset == 0
        assert not it.fetcher.following


async def test_what_many_partitions_get_is_appended_in_turns(autojump_clock: Any) -> None:
    """Each waits for the disk when a leader epoch begins in it: a thousand took seconds, without serving clients."""
    async with following() as it:
        hosted = [it.broker.give("t", leader=2, epoch=5, partition_epoch=10, index=index) for index in range(20)]
        request = await it.leader.request()
        asked = [part.index for _, parts in request.topics for part in parts]
        while len(asked) < 20:
            it.leader.answer()
            request = await it.leader.request()
            asked += [part.index for _, parts in request.topics for part in parts]
        parts = [FetchResponsePartition(n, high_watermark=1, log_start_offset=0, records=sent(0)) for n in range(20)]
        it.leader.answer(*(("t", part) for part in parts))
        seen = []
        while not seen or seen[-1] < 20:
            await trio.lowlevel.checkpoint()
            seen.append(sum(h.log.log_end_offset for h in hosted))
        assert len(set(seen) - {0}) > 5
