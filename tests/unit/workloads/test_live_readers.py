"""A workload's own readers after the load: who is waited for, and for how long."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from squall.workloads.live_readers import LiveReaders
from tests.support.brokers.memory_env import FakeEnv

HERE, THERE = ("t", 0), ("t", 1)
"""No client connects."""


@pytest.fixture
def readers() -> LiveReaders:
    """Process 4 reads both partitions, and is at 7 and 5."""
    found = LiveReaders(stay=True)
    found.begins(4, "squall", [HERE, THERE])
    found.moved(4, {HERE: 7, THERE: 5})
    return found


async def test_readers_that_are_where_they_should_be_are_not_waited_for(readers: LiveReaders, clock: MockClock) -> None:
    assert await readers.reach(FakeEnv(), {HERE: 7, THERE: 5, ("t", 2): 9}, 15, 30) == []
    assert trio.current_time() == 0


async def test_a_reader_that_comes_there_is_waited_for_no_longer(readers: LiveReaders, clock: MockClock) -> None:
    async def poll() -> None:
        await trio.sleep(3)
        readers.moved(4, {HERE: 8})

    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        assert await readers.reach(FakeEnv(), {HERE: 8}, 15, 30) == []
    assert 3 <= trio.current_time() < 3.3


async def test_who_gets_nothing_is_behind_after_what_counts_as_stuck(readers: LiveReaders, clock: MockClock) -> None:
    (behind,) = await readers.reach(FakeEnv(), {HERE: 8}, 15, 30)
    assert (behind.process, behind.client, behind.place) == (4, "squall", HERE)
    assert (behind.position, behind.goal) == (7, 8)
    assert behind.idle_s == pytest.approx(15, abs=0.2)


async def test_who_gets_on_has_the_whole_limit_and_is_not_idle_then(readers: LiveReaders, clock: MockClock) -> None:
    async def crawl() -> None:
        for position in range(8, 100):
            await trio.sleep(5)
            readers.moved(4, {HERE: position})

    async with trio.open_nursery() as nursery:
        nursery.start_soon(crawl)
        (behind,) = await readers.reach(FakeEnv(), {HERE: 1000}, 15, 32)
        nursery.cancel_scope.cancel()
    assert behind.idle_s < 5.2
    assert trio.current_time() == pytest.approx(32, abs=0.2)


async def test_to_be_thrown_back_is_no_progress(readers: LiveReaders, clock: MockClock) -> None:
    async def fall() -> None:
        await trio.sleep(5)
        readers.moved(4, {HERE: 3})

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fall)
        (behind,) = await readers.reach(FakeEnv(), {HERE: 8}, 15, 60)
    assert behind.position == 3
    assert behind.idle_s == pytest.approx(15, abs=0.2)


async def test_a_reader_that_was_never_given_its_partitions_is_behind(clock: MockClock) -> None:
    readers = LiveReaders(stay=True)
    readers.begins(5, "confluent", [HERE])
    (behind,) = await readers.reach(FakeEnv(), {HERE: 1}, 15, 30)
    assert (behind.client, behind.position) == ("confluent", -1)


@pytest.mark.parametrize("stay", [False, True])
def test_readers_outlive_the_load_where_somebody_needs_them(stay: bool) -> None:
    readers = LiveReaders(stay=stay)
    readers.load_over()
    assert readers.settled.is_set()
    assert readers.may_end.is_set() is not stay
    readers.let_go()
    assert readers.may_end.is_set()
