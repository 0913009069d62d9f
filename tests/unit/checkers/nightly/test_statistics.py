"""Shares with their uncertainty, and latencies that can be added up."""

from __future__ import annotations

import random

import pytest

from squall.checkers.nightly.statistics import bucket_of, middle_of, percentile_of, wilson


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        # Newcombe 1998, Two-sided confidence intervals for the single proportion, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_is_the_published_one(hits: int, trials: int, low: float, high: float) -> None:
    assert wilson(hits, trials) == pytest.approx((low, high), abs=5e-5)


def test_the_interval_of_all_is_that_of_none_turned_round() -> None:
    low, high = wilson(0, 100)
    assert wilson(100, 100) == pytest.approx((1 - high, 1 - low))
    assert (low, wilson(100, 100)[1]) == (0.0, 1.0)


def test_nothing_tried_says_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("hits", "trials"), [(2, 1), (-1, 3), (0, -1)])
def test_impossible_counts_are_refused(hits: int, trials: int) -> None:
    with pytest.raises(ValueError, match="no share"):
        wilson(hits, trials)


def test_buckets_go_up_and_none_is_left_out() -> None:
    buckets = [bucket_of(took) for took in range(5000)]
    assert buckets == sorted(buckets)
    assert set(buckets) == set(range(buckets[-1] + 1))


def test_the_middle_of_a_bucket_is_near_all_that_is_in_it() -> None:
    for took in [*range(3000), *(3**power for power in range(8, 30))]:
        assert middle_of(bucket_of(took)) == pytest.approx(took, rel=1 / 128, abs=0)


def test_percentiles_of_added_histograms_are_those_of_all_values() -> None:
    rng = random.Random(7)
    values = sorted(int(rng.lognormvariate(6, 2)) for _ in range(10_000))
    histogram: dict[int, int] = {}
    for half in (values[::2], values[1::2]):
        for value in half:
            histogram[bucket_of(value)] = histogram.get(bucket_of(value), 0) + 1
    for fraction in (0.01, 0.5, 0.99, 1.0):
        exact = values[int(fraction * 9_999)]
        assert percentile_of(histogram, fraction) == pytest.approx(exact, rel=0.02, abs=1)


def test_nothing_has_no_percentile() -> None:
    assert percentile_of({}, 0.5) is None
    assert percentile_of({3: 0}, 0.5) is None
