"""Partitions share a limited batch of a stream."""

from __future__ import annotations

from typing import Any

import pytest

from squall.spark_analysis.load.stream import limited


def at(*offsets: int) -> dict[str, Any]:
    numbered = {str(index): offset for index, offset in enumerate(offsets)}
    return {"t": {"id": "aa", "offsets": numbered, "epochs": dict.fromkeys(numbered, 1)}}


@pytest.mark.parametrize(
    ("start", "end", "most", "found"),
    [
        ((0, 0), (5, 5), 10, (5, 5)),
        ((0, 0), (30, 10), 20, (15, 5)),
        ((0, 0), (1000, 1), 10, (9, 1)),
        ((7, 3), (7, 103), 10, (7, 13)),
    ],
)
def test_each_partition_gets_its_share(
    start: tuple[int, ...], end: tuple[int, ...], most: int, found: tuple[int, ...]
) -> None:
    assert limited(at(*start), at(*end), most) == at(*found)
