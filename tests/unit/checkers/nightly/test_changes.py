"""Finds where a series of nights changed."""

from __future__ import annotations

import random

from squall.checkers.nightly.changes import ChangePoint, changes


def test_a_step_is_a_change_at_its_first_night() -> None:
    assert changes([10, 11, 10, 10, 30, 31, 30]) == [ChangePoint(4, 10, 30)]


def test_each_of_two_steps_is_found() -> None:
    found = changes([10, 11, 9, 10, 50, 52, 51, 50, 20, 21, 20])
    assert [change.at for change in found] == [4, 8]
    assert [change.rises for change in found] == [True, False]


def test_one_slow_night_is_no_change() -> None:
    assert changes([10, 11, 10, 90, 10, 11, 10, 10]) == []


def test_five_nights_are_too_few() -> None:
    assert changes([1, 1, 1, 9, 9]) == []
    assert changes([]) == []


def test_a_small_share_is_no_change_however_steady_the_nights_were() -> None:
    assert changes([100, 100, 100, 100, 115, 115, 115, 115]) == []
    assert changes([100, 100, 100, 100, 125, 125, 125, 125]) == [ChangePoint(4, 100, 125)]


def test_noise_alone_is_seldom_a_change() -> None:
    rng = random.Random(3)
    series = [[rng.gauss(100, 10) for _ in range(30)] for _ in range(100)]
    assert sum(bool(changes(each)) for each in series) <= 5


def test_from_nothing_to_something_is_a_change() -> None:
    assert changes([0, 0, 0, 0, 5, 5, 5]) == [ChangePoint(4, 0, 5)]
