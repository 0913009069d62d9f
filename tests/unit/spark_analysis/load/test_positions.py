"""A stream never goes back, and reports rows whose records an unclean election took away."""

from __future__ import annotations

from typing import Any

import pytest

from squall.spark_analysis.load.stream import EpochEnd, continued


def at(offset: int, epoch: int) -> dict[str, Any]:
    return {"t": {"id": "aa", "offsets": {"0": offset}, "epochs": {"0": epoch}}}


@pytest.mark.parametrize(
    ("latest", "kept", "found", "gone"),
    [
        pytest.param((120, 4), None, (120, 4), None, id="the same leader"),
        pytest.param((120, 5), (5, 100), (120, 5), None, id="a new leader that has all"),
        pytest.param((120, 5), (6, 80), (120, 5), (80, 100, 6), id="a new leader that has less, and more was written"),
        pytest.param((90, 5), (5, 80), (100, 5), (80, 100, 5), id="a new leader that has less"),
        pytest.param((90, 5), (5, None), (100, 5), None, id="a new leader that does not know"),
        pytest.param((80, 3), None, (100, 4), None, id="a leader of the past"),
        pytest.param((80, -1), None, (100, 4), (80, 100, -1), id="a broker without leader epochs"),
    ],
)
def test_a_stream_at_offset_100_of_epoch_4(
    latest: tuple[int, int], kept: EpochEnd | None, found: tuple[int, int], gone: tuple[int, int, int] | None
) -> None:
    position, missing = continued(at(100, 4), at(*latest), {} if kept is None else {("t", 0): kept})
    assert position == at(*found)
    assert [(each.first, each.end, each.leader_epoch) for each in missing] == ([gone] if gone else [])


def test_a_topic_and_a_partition_that_are_new_begin_as_they_are() -> None:
    latest = {**at(7, 0), "u": {"id": "bb", "offsets": {"0": 3, "1": 4}, "epochs": {"0": 0, "1": 0}}}
    before = {"u": {"id": "bb", "offsets": {"0": 2}, "epochs": {"0": 0}}}
    assert continued(before, latest, {}) == (latest, [])


def test_a_topic_that_is_not_there_any_more_keeps_its_place() -> None:
    before = {**at(7, 0), "u": {"id": "bb", "offsets": {"0": 2}, "epochs": {"0": 0}}}
    assert continued(before, at(9, 0), {})[0] == {**before, **at(9, 0)}


def test_the_rows_are_named() -> None:
    (gone,) = continued(at(100, 4), at(120, 6), {("t", 0): (6, 80)})[1]
    assert str(gone) == "t-0: offsets 80 to 99 are gone: the leader of epoch 6 does not have them in the log of epoch 4"
