"""Two attempts of a task must read the same: the history shows each difference by an anomaly that there is anyway."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from squall.checkers.anomalies.registry import find_all
from squall.checkers.history.parser import parse

START, END = 3, 9
RECORDS = [(3, 1), (5, 2), (6, 3), (8, 4)]
"""Holds (offset, value) of the records of the range; the other offsets hold markers."""


def lines(*attempts: Sequence[tuple[int, int]]) -> list[bytes]:
    """Return a history in which an executor reads the range once for each of these attempts, in responses of two
    records.
    """
    found: list[dict[str, Any]] = [
        {"e": "h", "schema": 1, "run": "r", "wall_ms": 0, "mono_ns": 0},
        {"e": "t", "part": 0, "topic": "orders", "index": 0},
    ]
    op = 0
    for proc, attempt in enumerate(attempts):
        settings = {"isolation": 1, "load": 1}
        found.append({"e": "p", "p": proc, "role": "executor", "client": "squall", "settings": settings})
        position = START
        found.append({"e": "i", "op": op, "p": proc, "f": "assign", "t": op, "at": {"0": position}})
        found.append({"e": "c", "op": op, "st": 0, "t": op})
        for first in range(0, max(len(attempt), 1), 2):
            op += 1
            got, before = attempt[first : first + 2], position
            position = END if first + 2 >= len(attempt) else got[-1][0] + 1
            found.append({"e": "i", "op": op, "p": proc, "f": "poll", "t": op, "at": {"0": before}})
            part = [0, position, -1, -1, -1, [[*each] for each in got]]
            found.append({"e": "c", "op": op, "st": 0, "t": op, "got": [part]})
        op += 1
    return [json.dumps(each).encode() + b"\n" for each in found]


def anomalies(*attempts: Sequence[tuple[int, int]]) -> set[str]:
    history = parse(lines(*attempts))
    assert history.problem is None
    # Values without a send are phantoms: this history has no producers.
    return {each.anomaly for each in find_all(history)} - {"phantom"}


def test_attempts_that_read_the_same_show_nothing() -> None:
    assert anomalies(RECORDS, RECORDS, RECORDS) == set()


@pytest.mark.parametrize("left_out", RECORDS)
@pytest.mark.parametrize("first", [True, False])
def test_a_record_that_one_attempt_lacks_was_skipped(left_out: tuple[int, int], first: bool) -> None:
    fewer = [each for each in RECORDS if each != left_out]
    assert anomalies(*((fewer, RECORDS) if first else (RECORDS, fewer))) & {"poll-skip", "int-poll-skip"}


def test_an_attempt_that_gets_nothing_skipped_everything() -> None:
    assert anomalies(RECORDS, []) == {"poll-skip"}


@pytest.mark.parametrize("number", range(len(RECORDS)))
def test_another_record_at_an_offset_is_inconsistent(number: int) -> None:
    other = [(off, 99 if n == number else value) for n, (off, value) in enumerate(RECORDS)]
    assert "inconsistent-offset" in anomalies(RECORDS, other)


def test_a_record_that_comes_twice_in_an_attempt_goes_back() -> None:
    assert "nonmonotonic-poll" in anomalies(RECORDS, [*RECORDS[:2], *RECORDS[1:]])
