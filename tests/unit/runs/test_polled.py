"""Checks what a cluster says of itself when it is asked: changes are reported once, and nothing goes back to an old
epoch.
"""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from squall.chaos.runs.polled import EVERY_S, MetadataChangeTracker, keep_polled
from tests.unit.runs.test_lookout import answer, says, silent


def polled(t: float, leader: int, epoch: int, isr: list[int]) -> dict[str, Any]:
    return {"t": t, "e": "polled", "topic": "t", "partition": 0, "leader": leader, "epoch": epoch, "isr": isr}


def test_only_changes_are_told() -> None:
    told = MetadataChangeTracker()
    assert told.changes([answer(1, (2, 1), 3)] * 2, 1.0) == [
        polled(1.0, 1, 3, [1, 2]),
        {"t": 1.0, "e": "polled_controller", "node": 1, "epoch": -1},
    ]
    assert told.changes([answer(1, (1, 2), 3)] * 2, 2.0) == []
    assert told.changes([answer(2, (2,), 4)] * 2, 3.0) == [polled(3.0, 2, 4, [2])]


def test_a_broker_that_is_cut_off_takes_nothing_back() -> None:
    told = MetadataChangeTracker()
    told.changes([answer(2, (2, 3), 4, controller=2, term=9)], 1.0)
    assert told.changes([answer(1, (1, 2, 3), 3, controller=1, term=8)], 2.0) == []
    assert told.changes([], 3.0) == []


def test_a_new_controller_is_told_with_its_epoch() -> None:
    told = MetadataChangeTracker()
    told.changes([answer(1, (1, 2), 3, controller=1, term=5)], 1.0)
    (line,) = told.changes([answer(1, (1, 2), 3, controller=2, term=6)], 2.0)
    assert line == {"t": 2.0, "e": "polled_controller", "node": 2, "epoch": 6}


async def test_a_silent_broker_delays_nothing(autojump_clock: trio.testing.MockClock) -> None:
    lines: list[dict[str, Any]] = []
    one, two = answer(1, (1, 2, 3), 1), answer(2, (2, 3), 2)
    with trio.move_on_after(8 * EVERY_S):
        await keep_polled([silent, says(one, one, two)], trio.current_time, lines.append)
    assert [(line["leader"], line["epoch"]) for line in lines if line["e"] == "polled"] == [(1, 1), (2, 2)]
    assert lines[-1]["t"] - lines[0]["t"] <= 4 * EVERY_S
