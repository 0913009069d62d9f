"""Checks what changed over the nights."""

from __future__ import annotations

from squall.reports.nightly.trends import trends_of
from tests.support.nightly.rows import finding, night, run

NAMES = [f"n{number}" for number in range(1, 8)]
NIGHTS = [night(name) for name in NAMES]


def test_a_night_from_which_on_nothing_could_be_written_for_longer_is_a_change() -> None:
    runs = [run(name=name, unavailable_ms=2000.0 if name < "n5" else 9000.0) for name in NAMES]
    ((series, change),) = trends_of(NIGHTS, runs, []).changed
    assert (series.measure, series.nights[change.at], change.before, change.after) == (
        "unavailable_ms",
        "n5",
        2000,
        9000,
    )


def test_the_median_of_a_nights_runs_counts_and_runs_without_a_verdict_do_not() -> None:
    runs = [run("a", p99_ms=1.0), run("b", p99_ms=3.0), run("c", p99_ms=900.0)]
    runs += [run("d", p99_ms=5000.0, verdict="unknown"), run("e", p99_ms=7000.0, counts=False)]
    series = {each.measure: each.values for each in trends_of(NIGHTS[:1], runs, []).series}
    assert series["p99_ms"] == (3.0,)


def test_each_target_has_a_series_of_its_own() -> None:
    runs = [run(name="n1"), run("k", "n1", target="kafka"), run("k", "n2", target="kafka")]
    found = [(each.where, each.nights) for each in trends_of(NIGHTS[:2], runs, []).series]
    assert found == [("kafka, process", ("n1", "n2")), ("squall, process", ("n1",))]


def test_a_night_counts_what_is_new_known_and_gone_in_it() -> None:
    rows = [
        finding(name="n1"),
        finding(name="n2"),
        finding(name="n2", fingerprint="f2"),
        finding(name="n3", fingerprint="f2"),
    ]
    runs = [run(name="n2", lost=4), run(name="n3"), run(name="n4")]
    counts = trends_of(NIGHTS[:4], runs, rows).nights
    assert [(each.new, each.known, each.gone) for each in counts] == [(1, 0, 0), (1, 1, 0), (0, 1, 1), (0, 0, 1)]
    assert (counts[1].lost, counts[1].valid, counts[0].runs) == (4, 1, 0)


def test_a_finding_is_gone_in_the_first_night_that_tries_its_configuration_again() -> None:
    runs = [run(name="n1"), run(name="n2", verdict="unknown"), run(name="n3", configuration="acks=1")]
    runs += [run(name="n4"), run(name="n5")]
    counts = trends_of(NIGHTS[:5], runs, [finding(name="n1")]).nights
    assert [each.gone for each in counts] == [0, 0, 0, 1, 0]


def test_items_that_are_sometimes_unknown_are_told_with_the_last_reason() -> None:
    runs = [run("a", "n1", verdict="unknown", counts=False, why="old"), run("a", "n1", attempt=2)]
    runs += [run("a", "n2", verdict="no verdict", why="the harness was killed"), run("b", "n2")]
    (flaky,) = trends_of(NIGHTS[:2], runs, []).flaky
    assert (flaky.item, flaky.unknown, flaky.attempts, flaky.nights) == ("a", 2, 3, 2)
    assert flaky.why == "the harness was killed"


def test_the_last_night_is_the_last_in_time_and_not_by_its_name() -> None:
    names = [f"n{number}" for number in (7, 6, 5, 4, 3, 2, 1)]
    runs = [run("a", name, unavailable_ms=2000.0 if name > "n4" else 9000.0) for name in names]
    runs += [run("b", name, unavailable_ms=2000.0 if name > "n3" else 9000.0, configuration="b") for name in names]
    runs += [run("c", name, verdict="unknown", why=name) for name in ("n2", "n1")]
    told = trends_of([night(name, began=f"2026-07-{8 - int(name[1]):02}") for name in names], runs, [])
    assert [series.nights[change.at] for series, change in told.changed] == ["n3", "n4"]
    assert [each.why for each in told.flaky] == ["n1"]
