"""Stable positions that wait for followers are told in turns, counted by what is told, not by what is asked."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from broker.coordinators.groups.values import Commit, Committed, FetchOffsets
from broker.replicas.coordinators import group_coordinator
from tests.support.brokers.grouping_broker import GroupingBroker


async def passes(room: GroupingBroker, ms: int) -> None:
    room.env.now_ms += ms
    await trio.sleep(2 * group_coordinator.CONFIRMED_EVERY_S)


async def test_who_asks_for_all_positions_takes_a_turn_for_as_many_as_there_are(
    monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Such a request has 120 bytes. Counted as one position each, 400 of them got the broker fenced."""
    monkeypatch.setattr(group_coordinator, "TOLD_IN_A_TURN", 3)
    room = GroupingBroker(nursery)
    await room.lead()
    room.do(Commit("g", -1, "", None, tuple((("t", index), Committed(5)) for index in range(3))))
    await passes(room, 1001)
    waits = [room.submit(FetchOffsets("g", None, stable=True)) for _ in range(3)]
    told_before, sleep = list[int](), room.env.sleep

    async def looked(seconds: float) -> None:
        told_before.append(sum(map(len, waits)))
        await sleep(seconds)

    monkeypatch.setattr(room.env, "sleep", looked)
    room.replicate()
    room.replicate()
    await passes(room, 0)
    assert told_before[-3:] == [1, 2, 3], "each is a turn's work"
