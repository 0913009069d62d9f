"""Readers that are behind, and those to whom retention has left nothing to read."""

from __future__ import annotations

from typing import Any, cast

import pytest

from squall.chaos.runs import readers_behind
from squall.chaos.runs.readers_behind import with_records_left
from squall.workloads.client.admin import ListedOffset
from squall.workloads.live_readers import LaggingReader

CLIENT = cast(Any, None)


def behind(goal: int, index: int = 0) -> LaggingReader:
    return LaggingReader(1, "squall", ("t", index), 172, goal, 15.0)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> dict[int, ListedOffset]:
    """Partition -> what its leader answers when it is asked for its log start."""
    found: dict[int, ListedOffset] = {}

    async def list_offsets(_: Any, places: Any, *more: Any, **named: Any) -> dict[Any, ListedOffset]:
        return {place: found[place[1]] for place in places}

    monkeypatch.setattr(readers_behind, "list_offsets", list_offsets)
    return found


@pytest.mark.parametrize(("log_start", "counts"), [(0, True), (180, True), (181, False), (190, False)])
async def test_a_reader_is_behind_only_where_records_before_its_goal_are_left(
    starts: dict[int, ListedOffset], log_start: int, counts: bool
) -> None:
    starts[0] = ListedOffset(log_start, -1, 0, "")
    assert await with_records_left(CLIENT, [behind(181)]) == ([behind(181)] if counts else [])


async def test_a_reader_is_behind_where_no_leader_tells_what_is_left(starts: dict[int, ListedOffset]) -> None:
    starts[0], starts[1] = ListedOffset(-1, -1, -1, "TIMED_OUT"), ListedOffset(200, -1, 0, "")
    assert await with_records_left(CLIENT, [behind(181), behind(181, 1)]) == [behind(181)]


async def test_nobody_is_asked_where_nobody_is_behind() -> None:
    assert await with_records_left(CLIENT, []) == []
