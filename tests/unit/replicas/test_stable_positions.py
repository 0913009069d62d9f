"""Positions that may not change under a reader are answered once all in-sync followers were heard of."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing

from squall.broker.coordinators.groups.values import CommitOffsets, FetchOffsets, GroupResponse, OffsetAndMetadata
from squall.broker.protocol.errors import ErrorCode
from squall.broker.replicas.coordinators import group_coordinator
from squall.broker.replicas.coordinators.group_coordinator import TOPIC
from tests.support.brokers.coordinators import FETCH, T0, GroupBroker, commit, told
from tests.support.brokers.in_memory import answers as answered

Clock = trio.testing.MockClock


async def passes(broker: GroupBroker, ms: int) -> None:
    broker.env.now_ms += ms
    await trio.sleep(2 * group_coordinator.CONFIRMED_EVERY_S)


async def test_a_coordinator_that_its_followers_have_left_tells_no_stable_positions(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    """A swarm's seed: one that only its members still reached answered positions of before its successor's."""
    broker = GroupBroker(nursery)
    await broker.lead()
    broker.do(commit(5))
    assert told(broker.submit(FETCH)) == [5]
    await passes(broker, 1001)
    waits = broker.submit(FETCH)
    assert told(broker.submit(replace(FETCH, stable=False))) == [5], "as with Kafka"
    await passes(broker, 500)
    assert not waits, "its followers may come back"
    broker.replicate()
    await passes(broker, 0)
    assert not waits, "what has come may have been sent long ago"
    broker.replicate()
    await passes(broker, 0)
    assert told(waits) == [5]
    await passes(broker, 1001)
    waits = broker.submit(FETCH)
    broker.follower_has(2, 1, name=TOPIC)
    await passes(broker, 999)
    assert not waits, "broker 3 may be the next coordinator"
    await passes(broker, 1)
    assert waits == [GroupResponse(ErrorCode.NOT_COORDINATOR)]
    broker.give(TOPIC, isr=(1, 2), partition_epoch=99)
    broker.follower_has(2, 1, name=TOPIC)
    broker.follower_has(2, 1, name=TOPIC)
    assert told(broker.submit(FETCH)) == [5]
    broker.give(TOPIC, isr=(1,), partition_epoch=100)
    await passes(broker, 10_000)
    assert told(broker.submit(FETCH)) == [5], "nobody can be"


@pytest.mark.parametrize("ms", [1, 20_000])
async def test_a_fetch_that_lay_in_a_socket_does_not_say_that_its_follower_follows_now(
    nursery: trio.Nursery, autojump_clock: Clock, ms: int
) -> None:
    """A coordinator that was paused reads first what its followers sent before they had another leader."""
    broker = GroupBroker(nursery)
    await broker.lead()
    broker.do(commit(5))
    broker.replicate()
    broker.env.now_ms += ms
    broker.replicate()
    waits = broker.submit(FETCH)
    await passes(broker, 0)
    assert not waits
    broker.replicate()
    await passes(broker, 0)
    assert told(waits) == [5], "they have been answered since, and follow"


async def test_followers_whose_fetches_wait_are_answered_at_once_where_somebody_waits_for_them(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    broker = GroupBroker(nursery)
    await broker.lead()
    broker.fetch(conn := broker.client(), (TOPIC, 0), replica=2, epoch=5)
    await passes(broker, 1001)
    broker.submit(FETCH)
    assert not answered(conn)
    broker.server.settle()
    assert len(answered(conn)) == 1
    broker.fetch(conn, (TOPIC, 0), replica=2, epoch=5)
    await passes(broker, 0)
    assert len(answered(conn)) == 1, "its next fetch is not left to wait, either"


async def test_who_waits_for_followers_is_sent_on_before_a_commit_would_time_out(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    broker = GroupBroker(nursery, replica_fetch_wait_max_ms="6000")
    await broker.lead()
    await passes(broker, 6501)
    waits = broker.submit(FETCH)
    await passes(broker, 2499)
    assert not waits
    await passes(broker, 1)
    assert waits == [GroupResponse(ErrorCode.NOT_COORDINATOR)], "offsets.commit.timeout.ms is 5000"


async def test_positions_that_wait_for_followers_take_so_much_memory_and_no_more(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    broker = GroupBroker(nursery, squall_groups_max_bytes="65536")
    await broker.lead()
    broker.do(commit(5))
    broker.replicate()
    asked = replace(FETCH, partitions=tuple(("t", index) for index in range(50)))
    for _ in range(2):
        await passes(broker, 1001)
        waits = [broker.submit(asked) for _ in range(20)]
        assert [each for each in waits if each] == [[GroupResponse(ErrorCode.NOT_COORDINATOR)]] * 10, "6,140 bytes each"
        broker.replicate()
        broker.replicate()
        await passes(broker, 0)
        assert all(waits)


async def test_a_leadership_that_is_lost_meanwhile_is_told_to_who_waits_for_followers(
    nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    broker = GroupBroker(nursery)
    await broker.lead()
    await passes(broker, 1001)
    waits = broker.submit(FETCH)
    broker.give(TOPIC, leader=2, epoch=6, partition_epoch=60)
    await passes(broker, 0)
    assert waits == [GroupResponse(ErrorCode.NOT_COORDINATOR)]


async def test_positions_of_many_groups_are_told_in_turns_and_looked_for_once(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, autojump_clock: Clock
) -> None:
    """A request may ask for 50,000: none of them is looked at while the first one has to wait."""
    monkeypatch.setattr(group_coordinator, "ANSWERED_IN_A_TURN", 2)
    broker = GroupBroker(nursery)
    await broker.lead()
    await passes(broker, 1001)
    waits = [broker.submit(replace(FETCH, group_id=f"g{n}")) for n in range(5)]
    assert [*map(len, broker.coordinator._unconfirmed.values())] == [5], "by one task"
    told_before, sleep = list[int](), broker.env.sleep

    async def looked(seconds: float) -> None:
        told_before.append(sum(map(len, waits)))
        await sleep(seconds)

    monkeypatch.setattr(broker.env, "sleep", looked)
    await passes(broker, 1)
    broker.replicate()
    broker.replicate()
    await passes(broker, 0)
    assert told_before[-2:] == [2, 4]
    assert all(told(answers) == [None] for answers in waits)
    await passes(broker, 1001)
    waits = [broker.submit(replace(FETCH, partitions=(T0, ("t", 1), ("t", 2)))) for n in range(3)]
    broker.replicate()
    broker.replicate()
    await passes(broker, 0)
    assert told_before[-3:] == [1, 2, 3], "each is a turn's work"
    assert broker.coordinator._unconfirmed == {}


async def test_positions_are_told_as_with_kafka_where_that_is_asked_for(nursery: trio.Nursery) -> None:
    broker = GroupBroker(nursery, squall_group_confirmed_positions="false")
    await broker.lead()
    broker.do(commit(5))
    broker.env.now_ms += 10_000
    assert told(broker.submit(FETCH)) == [5]


async def test_who_asks_for_all_positions_takes_a_turn_for_as_many_as_there_are(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Such a request has 120 bytes. Counted as one position each, 400 of them got the broker fenced."""
    monkeypatch.setattr(group_coordinator, "ANSWERED_IN_A_TURN", 3)
    broker = GroupBroker(nursery)
    await broker.lead()
    broker.do(CommitOffsets("g", -1, "", None, tuple((("t", index), OffsetAndMetadata(5)) for index in range(3))))
    await passes(broker, 1001)
    waits = [broker.submit(FetchOffsets("g", None, stable=True)) for _ in range(3)]
    told_before, sleep = list[int](), broker.env.sleep

    async def looked(seconds: float) -> None:
        told_before.append(sum(map(len, waits)))
        await sleep(seconds)

    monkeypatch.setattr(broker.env, "sleep", looked)
    broker.replicate()
    broker.replicate()
    await passes(broker, 0)
    assert told_before[-3:] == [1, 2, 3], "each is a turn's work"
