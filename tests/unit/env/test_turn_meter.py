"""The longest turn: CPU time and units of work between two points where a task gives way."""

from __future__ import annotations

from typing import Any

import trio

from squall.broker.turn_meter import TaskStepMeter
from squall.broker.work import DONE


class Clock:
    """CPU time that only passes where a test says so."""

    now = 0.0


async def test_units_of_two_turns_are_not_added_up() -> None:
    clock, traced = Clock(), list[dict[str, Any]]()
    meter = TaskStepMeter(lambda event, **fields: traced.append({"e": event, **fields}), lambda: clock.now)

    async def work() -> None:
        for records, seconds in ((3, 0.5), (5, 0.25), (4, 1.0)):
            await trio.lowlevel.checkpoint()
            DONE.records += records
            DONE.entries += 2
            clock.now += seconds

    trio.lowlevel.add_instrument(meter)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
        meter.report()
        meter.report()
    finally:
        trio.lowlevel.remove_instrument(meter)
    *longest, report, anew = traced
    assert [line["squall_longest_turn_seconds"] for line in longest] == [0.5, 1.0]
    assert report["e"] == "turns_measured"
    assert (report["squall_longest_turn_seconds"], report["most_records"], report["most_entries"]) == (1.0, 5, 2)
    assert report["task"].endswith("work")
    assert (anew["squall_longest_turn_seconds"], anew["most_records"], anew["most_entries"]) == (0, 0, 0)
