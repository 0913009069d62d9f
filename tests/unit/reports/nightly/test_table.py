"""The cells of the durability table, in numbers and in words."""

from __future__ import annotations

import pytest

from squall.reports.nightly.table import amount, cells_of, duration, share
from tests.support.nightly.rows import cell, losing


def test_the_rate_is_of_all_that_may_count_as_lost() -> None:
    (told,) = cells_of([losing(lost=3, lost_unacknowledged=1, acknowledged=99)])
    assert told.rate == 0.03
    assert told.interval == pytest.approx((0.0103, 0.0845), abs=1e-4)
    assert told.per_leader_change == 0.75
    assert told.runs_interval == pytest.approx((0.342, 1.0), abs=1e-3)


def test_without_acknowledgements_there_is_no_rate() -> None:
    (told,) = cells_of([cell(acknowledged=0, leader_changes=None)])
    assert (told.rate, told.interval, told.per_leader_change) == (None, (0.0, 1.0), None)


def test_a_cell_is_broken_by_what_is_not_permitted_alone() -> None:
    broken = [each.broken for each in (*cells_of([losing(duplicated=2)]), *cells_of([cell(lost=1)]))]
    assert broken == [False, True]
    assert cells_of([cell(duplicated=1)])[0].broken
    assert cells_of([cell(invalid=1)])[0].broken


def test_the_gravest_cells_come_first() -> None:
    told = cells_of([losing(), cell(lost=1), cell(configuration="acks=0")])
    assert [each.configuration for each in told] == ["acks=all, min ISR 2 of 3", "acks=0", "acks=1, min ISR 1 of 3"]


def test_what_is_promised_is_said() -> None:
    assert cells_of([losing()])[0].promised == "may happen: loss and duplicates"
    assert cells_of([cell()])[0].promised == "no loss, no duplicates"
    assert cells_of([cell(promises=[""])])[0].promised == "not known"


def test_percentiles_come_from_the_added_histograms() -> None:
    (told,) = cells_of([cell(latency={"calm": {100: 98, 127: 2}, "faulty": {}})])
    assert (told.p50_ms, told.p99_ms, told.p50_faulty_ms) == (1.0, 1.27, None)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0, "0"),
        (0.00001234, "0.0012%"),
        (0.00047, "0.047%"),
        (0.0614, "6.14%"),
        (0.243, "24.3%"),
        (1.0, "100.0%"),
    ],
)
def test_shares_are_short(value: float | None, text: str) -> None:
    assert share(value) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, ""),
        (0.0, "0 ms"),
        (0.42, "0.42 ms"),
        (9.96, "10 ms"),
        (512.4, "512 ms"),
        (1540, "1.5 s"),
        (61_000, "61 s"),
    ],
)
def test_times_are_short(ms: float | None, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.0123, "0.012"), (2.5, "2.5"), (9.97, "10"), (319.4, "319"), (78000.2, "78,000")]
)
def test_means_of_counts_are_written_without_exponents(value: float, text: str) -> None:
    assert amount(value) == text
