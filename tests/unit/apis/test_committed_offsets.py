"""Committed offsets of groups: which partitions may have one, and that an answer about many does not delay other
requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from squall.broker.apis.committed_offsets import CommittedOffsetApis
from squall.broker.apis.groups import GroupApis
from squall.broker.apis.large_responses import CHARACTERS_OF_ONE, FEW, PIECE, LargeResponseLane
from squall.broker.coordinators.groups.values import CommitOffsets, OffsetAndMetadata
from squall.broker.net.connection import PendingResponse
from squall.broker.net.deferred_response import DeferredResponse
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import offset_commit, offset_fetch
from squall.broker.protocol.schema.describe_groups import DescribeGroupsRequest
from squall.broker.protocol.schema.sync_group import SyncGroupRequest
from tests.support.brokers.coordinators import GroupBroker

Clock = trio.testing.MockClock
MANY = 10 * PIECE


class OffsetsBroker(GroupBroker):
    """A group coordinator of a cluster where topic "t" has two partitions. Some groups have committed offsets of more,
    from before there was a limit.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self.give("t")
        self.give("t", index=1)
        self.much = LargeResponseLane(self.env)
        self.apis = CommittedOffsetApis(self.env, self.image, self.coordinator, self.config, self.much)
        self.encoded = 0

    async def cpu(self, function: Callable[..., Any], *args: Any) -> Any:
        self.encoded += 1
        await trio.lowlevel.checkpoint()
        return function(*args)

    def asks(self, version: int = 9) -> PendingResponse:
        return self.slot(self.client(), ApiKey.OFFSET_FETCH, version)

    def has(self, group_id: str, count: int) -> None:
        self.do(
            CommitOffsets(
                group_id, -1, "", None, tuple((("t", index), OffsetAndMetadata(index)) for index in range(count))
            )
        )

    async def follow(self) -> None:
        while True:
            await trio.sleep(0.001)
            self.env.now_ms += 1
            self.replicate()


@pytest.fixture
async def broker(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> OffsetsBroker:
    broker = OffsetsBroker(nursery)
    await broker.lead()
    monkeypatch.setattr(broker.env, "cpu", broker.cpu, raising=False)
    return broker


def asked(*groups: str, stable: bool = False) -> offset_fetch.OffsetFetchRequest:
    """Return an OffsetFetch for all committed offsets of these groups."""
    wanted = [offset_fetch.OffsetFetchRequestGroup(name, topics=None) for name in groups]
    return offset_fetch.OffsetFetchRequest(groups=wanted, require_stable=stable)


def told(answer: Any) -> dict[str, list[int]]:
    if isinstance(answer, bytes):
        answer, _ = offset_fetch.OffsetFetchResponse.decode(memoryview(answer), 0, 9)
    return {
        group.group_id: [part.committed_offset for topic in group.topics for part in topic.partitions]
        for group in answer.groups
    }


async def test_a_partition_that_does_not_exist_has_no_position(broker: OffsetsBroker) -> None:
    """As with Kafka. Without that, one group could have any number of them for eight bytes each."""
    parts = [offset_commit.OffsetCommitRequestPartition(index, 7) for index in (1, 2, -1)]
    topics = [offset_commit.OffsetCommitRequestTopic("t", partitions=parts)]
    later = broker.apis.offset_commit(offset_commit.OffsetCommitRequest("g", topics=topics), broker.asks(8))
    broker.replicate()
    answer = await later.wait()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [part.error_code for part in answer.topics[0].partitions] == [ErrorCode.NONE, unknown, unknown]
    assert told(broker.apis.offset_fetch(asked("g"), broker.asks())) == {"g": [7]}


async def test_a_retention_longer_than_time_lasts_is_for_ever(broker: OffsetsBroker) -> None:
    """The sum of the present time and such a retention does not fit into a record, which once was an error."""
    parts = [offset_commit.OffsetCommitRequestPartition(0, 7)]
    topics = [offset_commit.OffsetCommitRequestTopic("t", partitions=parts)]
    request = offset_commit.OffsetCommitRequest("g", retention_time_ms=2**63 - 1, topics=topics)
    later = broker.apis.offset_commit(request, broker.asks(2))
    broker.replicate()
    assert (await later.wait()).topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("lacks", [{"protocol_type": None}, {"protocol_name": None}])
async def test_a_sync_of_version_5_names_its_protocol(lacks: dict[str, None], broker: OffsetsBroker) -> None:
    """KIP-559: as in Kafka, it is refused before the group is looked up."""
    groups = GroupApis(broker.env, broker.coordinator, broker.config, broker.much)
    request = SyncGroupRequest("g", 1, "m", protocol_type="consumer", protocol_name="range").replace(**lacks)
    answer = groups.sync_group(request, broker.slot(broker.client(), ApiKey.SYNC_GROUP, 5))
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_few_positions_are_told_at_once(broker: OffsetsBroker) -> None:
    broker.has("g", FEW)
    assert told(broker.apis.offset_fetch(asked("g", "h"), broker.asks())) == {"g": [*range(FEW)], "h": []}
    assert not broker.encoded


async def test_text_weighs_too(broker: OffsetsBroker) -> None:
    """200 positions with metadata of 4,096 characters each are an answer of 3 MB."""
    places = [("t", index) for index in range(3)]
    for size, weighs_much in (
        (FEW * CHARACTERS_OF_ONE // 3 - CHARACTERS_OF_ONE, False),
        (FEW * CHARACTERS_OF_ONE // 3, True),
    ):
        metadata = "x" * size
        committed = tuple((place, OffsetAndMetadata(7, metadata=metadata)) for place in places)
        broker.do(CommitOffsets("g", -1, "", None, committed))
        assert isinstance(broker.apis.offset_fetch(asked("g"), broker.asks()), DeferredResponse) == weighs_much
        named = offset_fetch.OffsetFetchRequestTopics("t", partition_indexes=[0, 1, 2, 9])
        some = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("g", topics=[named])])
        assert isinstance(broker.apis.offset_fetch(some, broker.asks()), DeferredResponse) == weighs_much


@pytest.mark.parametrize("groups", [{"g": MANY}, {"a": FEW, "b": 1, "c": 1}])
@pytest.mark.parametrize("stable", [False, True])
async def test_while_many_are_told_others_have_turns_and_bytes_are_made_elsewhere(
    groups: dict[str, int], stable: bool, broker: OffsetsBroker, autojump_clock: Clock
) -> None:
    for name, count in groups.items():
        broker.has(name, count)
    broker.replicate()
    turns = 0

    async def bystander() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    later = broker.apis.offset_fetch(asked(*groups, stable=stable), broker.asks())
    assert isinstance(later, DeferredResponse)
    assert later.holds, "it takes effect on its way"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bystander)
        if stable:
            nursery.start_soon(broker.follow)
        answer = await later.wait()
        nursery.cancel_scope.cancel()
    assert isinstance(answer, bytes)
    assert told(answer) == {name: [*range(count)] for name, count in groups.items()}
    assert broker.encoded == 1
    assert turns >= max(len(groups), sum(groups.values()) // PIECE)


async def test_answers_that_tell_of_many_are_made_one_at_a_time_and_none_for_nobody(
    broker: OffsetsBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer takes memory until it is sent; four hundred requests of 120 bytes once blocked the event loop."""
    broker.has("g", MANY)
    slots = [broker.asks() for _ in range(4)]
    making = most = 0

    async def one(slot: PendingResponse) -> Any:
        return await broker.apis.offset_fetch(asked("g"), slot).wait()

    submit = broker.coordinator.submit

    def counted(request: Any, *given: Any) -> None:
        nonlocal making, most
        making += request.partitions is None
        most = max(most, making)
        submit(request, *given)

    async def cpu(function: Callable[..., Any], *args: Any) -> Any:
        nonlocal making
        await trio.lowlevel.checkpoint()
        making -= 1
        return function(*args)

    monkeypatch.setattr(broker.coordinator, "submit", counted)
    monkeypatch.setattr(broker.env, "cpu", cpu)
    found: dict[int, Any] = {}

    async def keep(number: int) -> None:
        found[number] = await one(slots[number])

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(keep, number)
        await trio.lowlevel.checkpoint()
        slots[2].conn.close()
    assert (most, making) == (1, 0)
    assert found[2] == []
    assert {number: len(told(found[number])["g"]) for number in (0, 1, 3)} == dict.fromkeys((0, 1, 3), MANY)


async def test_who_asks_a_coordinator_that_nobody_follows_is_refused_however_much_there_is_to_tell(
    broker: OffsetsBroker, autojump_clock: Clock
) -> None:
    broker.has("g", MANY)
    broker.env.now_ms += 1000
    later = broker.apis.offset_fetch(asked("g", stable=True), broker.asks())

    async def pass_time() -> None:
        while True:
            await trio.sleep(0.01)
            broker.env.now_ms += 10

    async with trio.open_nursery() as nursery:
        nursery.start_soon(pass_time)
        with trio.fail_after(60):
            answer = await later.wait()
        nursery.cancel_scope.cancel()
    assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    assert not broker.encoded


@pytest.mark.parametrize("count", [3, MANY])
async def test_the_one_group_of_an_older_request_is_told_the_same(count: int, broker: OffsetsBroker) -> None:
    broker.has("g", count)
    request = offset_fetch.OffsetFetchRequest("g", topics=None)
    answer = broker.apis.offset_fetch(request, broker.asks(7))
    if isinstance(answer, DeferredResponse):
        answer, _ = offset_fetch.OffsetFetchResponse.decode(memoryview(await answer.wait()), 0, 7)
    assert [part.committed_offset for part in answer.topics[0].partitions] == [*range(count)]


@pytest.mark.parametrize("api", ["OffsetFetch", "DescribeGroups"])
async def test_who_waits_for_a_log_that_does_not_commit_keeps_nobody_else_in_the_lane_waiting(
    api: str, broker: OffsetsBroker, autojump_clock: Clock
) -> None:
    broker.has("g", MANY)
    broker.has("h", MANY)
    broker.submit(CommitOffsets("g", -1, "", None, ((("t", 0), OffsetAndMetadata(7)),)))
    groups = GroupApis(broker.env, broker.coordinator, broker.config, broker.much)

    def ask(name: str) -> Any:
        if api == "OffsetFetch":
            return broker.apis.offset_fetch(asked(name), broker.asks())
        return groups.describe_groups(DescribeGroupsRequest(groups=[name]), broker.asks(5))

    answers: list[str] = []

    async def keep(name: str) -> None:
        await ask(name).wait()
        answers.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep, "g")
        await trio.sleep(1)
        assert not answers, "its last position is not committed"
        nursery.start_soon(keep, "h")
        await trio.sleep(1)
        assert answers == ["h"]
        broker.replicate()
        await trio.sleep(1)
        assert answers == ["h", "g"]
