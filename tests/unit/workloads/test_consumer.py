"""The consumer against a scripted cluster: it reads everything once, and never moves a position on its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.records import encode_batch
from squall.broker.protocol.schema.fetch import FetchResponse
from squall.broker.protocol.timestamps import EARLIEST, LATEST
from squall.workloads.client.admin import ListedOffset, create_topics, list_offsets
from squall.workloads.client.client import Client
from squall.workloads.client.cluster import Place
from squall.workloads.client.connection import RequestFailed
from squall.workloads.client.consumer import Consumer, PollResult, PositionInvalidated
from squall.workloads.client.new_topic import NewTopic
from squall.workloads.client.settings import ClientSettings, ConsumerSettings
from tests.support.clusters.fake_cluster import Break, Delay, FakeCluster, Raw, Seen, Withhold

CLIENT = ClientSettings(request_timeout_ms=5000, control_timeout_ms=1000, connect_timeout_ms=1000)
T0, T1, T2 = ("t", 0), ("t", 1), ("t", 2)


def fill(cluster: FakeCluster, place: Place, count: int = 1) -> None:
    for _ in range(count):
        end = cluster.partitions[place].end
        cluster.partitions[place].store(encode_batch([(0, 0, None, b"%d" % end, [])]))


class Reading:
    """A consumer and all that its polls returned."""

    def __init__(self, consumer: Consumer, client: Client) -> None:
        self.consumer = consumer
        self.client = client
        self.offsets: dict[Place, list[int]] = {}
        self.events: list[PositionInvalidated] = []
        self.errors: list[str] = []

    async def poll(self, limit_s: float = 1.0) -> PollResult:
        polled = await self.consumer.poll(limit_s)
        for fetched in polled.fetched:
            self.offsets.setdefault(fetched.place, []).extend(record.offset for record in fetched.records)
        self.events += polled.events
        self.errors += [error.error for error in polled.errors]
        return polled

    async def until(self, expected: Mapping[Place, int], limit_s: float = 60) -> None:
        with trio.fail_after(limit_s):
            while any(self.consumer.positions[place] < end for place, end in expected.items()):
                await self.poll()

    async def until_event(self) -> PositionInvalidated:
        with trio.fail_after(60):
            while not self.events:
                await self.poll()
        return self.events[0]


@asynccontextmanager
async def reading(
    cluster: FakeCluster, positions: Mapping[Place, int], settings: ConsumerSettings | None = None
) -> AsyncIterator[Reading]:
    async with cluster.client(CLIENT) as client:
        consumer = Consumer(client, settings)
        consumer.assign(positions)
        yield Reading(consumer, client)


@pytest.fixture
def cluster(clock: MockClock) -> FakeCluster:
    found = FakeCluster()
    found.topic("t", [1, 2, 3])
    return found


async def test_everything_is_read_once_and_in_order(cluster: FakeCluster, clock: MockClock) -> None:
    fill(cluster, T0, 5)
    fill(cluster, T1, 3)
    async with reading(cluster, {T0: 0, T1: 1, T2: 0}) as reader:
        await reader.until({T0: 5, T1: 3})
        fill(cluster, T0, 2)
        await reader.until({T0: 7})
        assert reader.offsets[T0] == list(range(7)) and reader.offsets[T1] == [1, 2]
        assert all(seen.version == 18 for seen in cluster.requests(ApiKey.FETCH))


async def test_an_empty_poll_still_tells_where_the_log_stands(cluster: FakeCluster, clock: MockClock) -> None:
    fill(cluster, T0, 5)
    async with reading(cluster, {T0: 5}) as reader:
        polled = await reader.poll()
        (fetched,) = polled.fetched
        assert (fetched.position, fetched.high_watermark, fetched.log_start_offset, fetched.leader_epoch) == (
            5,
            5,
            0,
            0,
        )
        assert fetched.records == []


async def test_a_poll_of_a_cluster_that_is_gone_ends_in_time(cluster: FakeCluster, clock: MockClock) -> None:
    for node in (1, 2, 3):
        cluster.stop(node)
    async with reading(cluster, {T0: 0}) as reader:
        before = trio.current_time()
        assert not await reader.poll(2)
        assert trio.current_time() - before == pytest.approx(2, abs=0.1)


async def test_a_slow_broker_does_not_hold_up_the_others(cluster: FakeCluster, clock: MockClock) -> None:
    cluster.script.append(lambda seen: Delay(3) if seen.node == 1 and seen.api_key == ApiKey.FETCH else None)
    fill(cluster, T0, 5)
    fill(cluster, T1, 5)
    async with reading(cluster, {T0: 0, T1: 0}) as reader:
        with trio.fail_after(1):
            await reader.until({T1: 5})
        assert T0 not in reader.offsets
        await reader.until({T0: 5})
        assert reader.offsets[T0] == list(range(5))


async def test_out_of_range_is_an_event_and_the_partition_rests_until_it_is_sought(
    cluster: FakeCluster, clock: MockClock
) -> None:
    fill(cluster, T0, 5)
    async with reading(cluster, {T0: 9}) as reader:
        event = await reader.until_event()
        assert event == PositionInvalidated("OFFSET_OUT_OF_RANGE", T0, 9, 0, 5)
        asked = len(cluster.requests(ApiKey.FETCH))
        await reader.poll(5)
        assert len(cluster.requests(ApiKey.FETCH)) == asked
        assert reader.consumer.positions[T0] == 9
        reader.consumer.seek(T0, 3)
        await reader.until({T0: 5})
        assert reader.offsets[T0] == [3, 4]


async def test_a_new_leader_is_followed_and_the_position_validated(cluster: FakeCluster, clock: MockClock) -> None:
    fill(cluster, T0, 5)
    async with reading(cluster, {T0: 0}) as reader:
        await reader.until({T0: 5})
        cluster.move("t", 0, 2)
        fill(cluster, T0, 2)
        await reader.until({T0: 7})
        assert reader.offsets[T0] == list(range(7))
        (validation,) = cluster.requests(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        (asked,) = validation.message.topics[0].partitions
        assert (asked.current_leader_epoch, asked.leader_epoch) == (1, 0)


async def test_a_log_truncated_below_the_position_is_an_event(cluster: FakeCluster, clock: MockClock) -> None:
    fill(cluster, T0, 5)
    async with reading(cluster, {T0: 0}) as reader:
        await reader.until({T0: 5})
        del cluster.partitions[T0].batches[3:]
        cluster.move("t", 0, 2)
        fill(cluster, T0, 4)
        event = await reader.until_event()
        assert event == PositionInvalidated("LOG_TRUNCATED", T0, 5, -1, 3)
        reader.consumer.seek(T0, 3)
        await reader.until({T0: 7})
        assert reader.offsets[T0] == [0, 1, 2, 3, 4, 3, 4, 5, 6]


async def test_a_fenced_epoch_means_new_metadata(cluster: FakeCluster, clock: MockClock) -> None:
    fill(cluster, T0, 5)
    async with reading(cluster, {T0: 0}) as reader:
        await reader.until({T0: 5})
        cluster.move("t", 0, 1)
        fill(cluster, T0, 1)
        await reader.until({T0: 6})
        assert "FENCED_LEADER_EPOCH" in reader.errors


@pytest.mark.parametrize("trouble", [Break(), Break(b"\0\0\1\0\0\0"), Raw(b"\0\0\0\x05\0\0\0\1\xff"), Withhold()])
async def test_a_fetch_that_fails_is_asked_again_from_the_same_position(
    trouble: object, cluster: FakeCluster, clock: MockClock
) -> None:
    fill(cluster, T0, 5)
    left = [trouble]
    cluster.script.append(lambda seen: left.pop() if left and seen.api_key == ApiKey.FETCH else None)
    async with reading(cluster, {T0: 0}) as reader:
        await reader.until({T0: 5})
        assert reader.offsets[T0] == list(range(5))
        assert reader.errors


async def test_what_an_unsent_fetch_has_named_is_named_again(cluster: FakeCluster, clock: MockClock) -> None:
    fill(cluster, T0, 5)
    async with reading(cluster, {T0: 0}, ConsumerSettings(sessions=True)) as reader:
        await reader.until({T0: 5})
        consumer, leader = reader.consumer, reader.client.view.leader(*T0)
        connection = reader.client.connection(1)
        assert connection is not None and leader is not None
        connection.close("the link ends between two requests")
        consumer._asked.clear()
        consumer._ask_node(1, connection, [(T0, consumer._parts[T0], leader)])
        named = consumer._sessions[1].request_for({T0: (5, leader.epoch, reader.client.view.topic_id("t"))})
        assert set(named.parts) == {T0}


async def test_a_top_level_error_is_reported_and_tried_again(cluster: FakeCluster, clock: MockClock) -> None:
    fill(cluster, T0, 5)
    left = [FetchResponse(error_code=ErrorCode.UNKNOWN_TOPIC_ID)]
    cluster.script.append(lambda seen: left.pop() if left and seen.api_key == ApiKey.FETCH else None)
    async with reading(cluster, {T0: 0}) as reader:
        await reader.until({T0: 5})
        assert reader.errors == ["UNKNOWN_TOPIC_ID"]


async def test_a_seek_drops_what_was_under_way(cluster: FakeCluster, clock: MockClock) -> None:
    fill(cluster, T0, 5)
    cluster.script.append(lambda seen: Delay(1) if seen.api_key == ApiKey.FETCH else None)
    async with reading(cluster, {T0: 0}) as reader:
        await reader.poll(0.9)
        reader.consumer.seek(T0, 4)
        await reader.until({T0: 5})
        assert reader.offsets[T0] == [4]


async def test_positions_are_those_that_polls_have_returned(cluster: FakeCluster, clock: MockClock) -> None:
    fill(cluster, T0, 5)
    fill(cluster, T1, 5)
    cluster.script.append(lambda seen: Delay(1) if seen.node == 1 and seen.api_key == ApiKey.FETCH else None)
    async with reading(cluster, {T0: 0, T1: 0}) as reader:
        await reader.until({T1: 5})
        await trio.sleep(2)  # The answer of node 1 comes between two polls.
        assert reader.consumer.positions[T0] == 0
        await reader.poll()
        assert reader.consumer.positions[T0] == 5


async def test_damage_is_reported_with_its_offset(cluster: FakeCluster, clock: MockClock) -> None:
    fill(cluster, T0, 3)
    cluster.partitions[T0].batches[1].data[-1] ^= 1
    async with reading(cluster, {T0: 0}) as reader:
        polled = await reader.poll()
        (fetched,) = polled.fetched
        assert [record.offset for record in fetched.records] == [0, 2]
        assert [damage.offset for damage in fetched.damage] == [1]


async def test_offsets_are_listed_by_isolation_and_end(cluster: FakeCluster, clock: MockClock) -> None:
    fill(cluster, T0, 5)
    cluster.partitions[T0].hidden_from = 2
    cluster.partitions[T1].log_start = 4
    async with reading(cluster, {}) as reader:
        latest = await list_offsets(reader.client, [T0], LATEST)
        stable = await list_offsets(reader.client, [T0], LATEST, isolation=1)
        first = await list_offsets(reader.client, [T0, T1], EARLIEST)
    assert latest == {T0: ListedOffset(5, -1, 0, "", 0)} and stable[T0].offset == 2
    assert (first[T0].offset, first[T1].offset) == (0, 4)


async def test_listing_waits_for_a_leader_and_says_why_where_none_comes(cluster: FakeCluster, clock: MockClock) -> None:
    cluster.partitions[T0].leader = -1
    async with reading(cluster, {}) as reader:
        found = await list_offsets(reader.client, [T0, T1], LATEST, timeout_s=5)
        assert found[T0].error == "LEADER_NOT_AVAILABLE" and found[T1].error == ""
        cluster.move("t", 0, 1)
        assert (await list_offsets(reader.client, [T0], LATEST))[T0].error == ""


async def test_listing_asks_the_new_leader_after_an_error(cluster: FakeCluster, clock: MockClock) -> None:
    async with reading(cluster, {}) as reader:
        await list_offsets(reader.client, [T0], LATEST)
        cluster.move("t", 0, 3)
        fill(cluster, T0, 2)
        assert (await list_offsets(reader.client, [T0], LATEST))[T0].offset == 2


async def test_listing_asks_for_metadata_where_the_leader_has_never_heard_of_the_epoch(
    cluster: FakeCluster, clock: MockClock
) -> None:
    """The topic was made anew, so that epochs began again; and the client had not heard of it."""
    cluster.move("t", 0, 3)
    async with reading(cluster, {}) as reader:
        await list_offsets(reader.client, [T0], LATEST)
        cluster.topic("t", (3, 2, 1))
        fill(cluster, T0, 2)
        assert (await list_offsets(reader.client, [T0], LATEST))[T0] == ListedOffset(2, -1, 0, "", 0)


async def test_topics_are_created_and_errors_named(cluster: FakeCluster, clock: MockClock) -> None:
    async with reading(cluster, {}) as reader:
        answers = await create_topics(reader.client, [NewTopic("new", 2, 3), NewTopic("t", 1, 1)])
        assert answers == {"new": "", "t": "TOPIC_ALREADY_EXISTS"}


async def test_an_admin_request_without_answer_tells_of_doubt(cluster: FakeCluster, clock: MockClock) -> None:
    def withhold(seen: Seen) -> Withhold | None:
        return Withhold() if seen.api_key == ApiKey.CREATE_TOPICS else None

    cluster.script.append(withhold)
    async with reading(cluster, {}) as reader:
        with pytest.raises(RequestFailed) as caught:
            await create_topics(reader.client, [NewTopic("new", 2, 3)])
        assert caught.value.sent
