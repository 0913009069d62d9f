"""Ratios of pairs, and the interval that their median lies in."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import pytest

from bench.against import CERTAINTY, checkout, interval, ratios
from bench.clusters import Squall


def test_of_ten_pairs_the_smallest_and_the_largest_are_left_out() -> None:
    assert interval([1.3, 0.7, 1.0, 1.1, 0.9, 1.02, 0.98, 1.01, 0.99, 1.05]) == (0.9, 1.1)


def test_few_pairs_have_no_narrower_interval_than_all_of_them() -> None:
    assert interval([1.1, 0.9, 1.0]) == (0.9, 1.1)


@pytest.mark.parametrize("n", range(6, 14))
def test_the_interval_misses_the_median_no_more_often_than_is_said(n: int) -> None:
    low, high = interval(range(n))
    # Each value is below the median or above it, as a coin falls: count the falls in which the interval misses it.
    missed = sum(math.comb(n, below) for below in range(n + 1) if below <= low or below > high)
    assert missed / 2**n <= 1 - CERTAINTY


def test_both_are_loaded_in_turn_and_each_pair_gives_a_ratio(tmp_path: Path) -> None:
    now, then = Squall(tmp_path), Squall(tmp_path)
    asked: list[str] = []

    def load(cluster: Squall, seconds: float) -> float:
        asked.append("now" if cluster is now else "then")
        return 3.0 if cluster is now else 2.0

    assert ratios(now, then, load, 3, 1.0) == [1.5, 1.5, 1.5]
    assert asked == ["now", "then", "then", "now", "now", "then"]


def test_a_directory_is_measured_as_it_stands(tmp_path: Path) -> None:
    assert checkout(str(tmp_path), tmp_path / "unused") == tmp_path.resolve()


def test_all_pairs_of_checkouts_have_addresses_of_their_own(tmp_path: Path) -> None:
    clusters = [Squall(tmp_path), Squall(tmp_path, root=tmp_path)]
    assert clusters[0].environ() is None
    assert (clusters[1].environ() or {})["PYTHONPATH"] == str(tmp_path)
    assert all(one.name == other.name for one, other in combinations(clusters, 2))
