"""Checks that in the figure neither faults nor their labels cover each other, however long the run is."""

from __future__ import annotations

import itertools

import pytest

from squall.reports.fault_words import LONGEST_LABEL, FaultRow
from squall.reports.figure import AXIS_IN, _fault_rows

LETTER_IN = 0.065
"""Of the labels' font, on average."""


def a_fault(number: int, began: float, length: float | None, what: str, state: str = "landed") -> FaultRow:
    return FaultRow(number, what, "random", "broker 1", began, length, length, state, "", None, "", None, False)


@pytest.mark.parametrize("end", [20.0, 80.0, 600.0])
def test_labels_do_not_cover_each_other(end: float) -> None:
    faults = [
        a_fault(n, n * end / 20, end / 50, f"bandwidth ({'x' * (n * 3)})", "landed" if n % 3 else "not landed")
        for n in range(15)
    ]
    rows = _fault_rows(faults, 0.0, end)
    assert sorted(rows) == [fault.id for fault in faults]
    second_in = AXIS_IN / end
    for one, other in itertools.combinations(faults, 2):
        assert one.began is not None
        assert other.began is not None
        words = one.label if one.state == "landed" else f"{one.label}: {one.state}"
        if rows[one.id] == rows[other.id]:
            assert (other.began - one.began) * second_in >= LETTER_IN * len(words)


def test_one_without_an_end_has_its_row_for_itself() -> None:
    rows = _fault_rows([a_fault(0, 1.0, None, "kill"), a_fault(1, 50.0, 1.0, "pause")], 0.0, 60.0)
    assert rows == {0: 1, 1: 2}


def test_parameters_that_would_fill_the_figure_are_left_to_the_table() -> None:
    short, long = a_fault(0, 1, 1, "latency (+60 ± 10 ms)"), a_fault(1, 1, 1, f"slicer ({'x' * LONGEST_LABEL})")
    assert short.label == "latency (+60 ± 10 ms) → broker 1"
    assert long.label == "slicer → broker 1"
