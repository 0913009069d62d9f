"""Checks how many acknowledged records a verdict says were lost, by whose permission."""

from __future__ import annotations

from typing import Any

import pytest

from squall.checkers.losses import LossCount, loss_of, percent, permitted_loss

METRICS = {
    "outcomes": {"send": {"ok": 845}},
    "partitions": {"t-0": {"acked": 400, "acked_after_healing": 5}, "t-1": {"acked": 440}},
}


def lost(count: int, where: dict[str, int], permitted: bool | None = True, **more: Any) -> dict[str, Any]:
    cell = {"row": "acks=1", "under": "no fault, P, N or C", "source": "Kafka documentation"}
    usual = {"name": "lost-write", "count": count, "partitions": where, "cell": cell, "why": "another replica leads"}
    return {**usual, "permitted": permitted, **more}


def verdict(*anomalies: dict[str, Any]) -> dict[str, Any]:
    return {"anomalies": list(anomalies), "metrics": METRICS}


def test_a_permitted_loss_is_counted_over_names_and_partitions_with_its_share_and_its_ground() -> None:
    found = permitted_loss(verdict(lost(250, {"t-0": 50, "t-1": 200}), lost(10, {"t-1": 10}, name="unseen")))
    assert found == LossCount(
        260, 845, (("t-1", 210, 440), ("t-0", 50, 405)), ("acks=1 permits it",), ("another replica leads",)
    )
    assert str(found) == "260 of 845 acknowledged records lost (31 %): acks=1 permits it"


def test_what_is_not_permitted_or_not_judged_or_no_loss_is_no_permitted_loss() -> None:
    duplicate = lost(3, {}, name="duplicate")
    told = verdict(lost(2, {"t-0": 2}, permitted=False), lost(4, {}, permitted=None), duplicate)
    assert permitted_loss(told) is None
    against = loss_of(told, permitted=False)
    assert (str(against), against and against.partitions) == (
        "2 of 845 acknowledged records lost (less than 1 %)",
        (("t-0", 2, 405),),
    )


def test_each_cell_that_permits_a_loss_is_named_with_the_faults_that_it_needs() -> None:
    several = {"row": "acks=all, min ISR 2 or more", "under": "WM"}
    found = permitted_loss(verdict(lost(1, {}), lost(2, {}, cell=several), lost(3, {}, cell=several)))
    grounds = "acks=1 permits it and acks=all, min ISR 2 or more permits it under faults of class WM"
    assert str(found).endswith(f": {grounds}")


def test_a_loss_that_the_run_was_asked_for_says_so() -> None:
    asked = {"row": "a loss is expected (--expect loss)", "under": "any faults"}
    assert str(permitted_loss(verdict(lost(1, {}, cell=asked)))).endswith(": you asked for it (--expect loss)")


def test_without_figures_the_number_alone_is_told_and_never_a_share_above_the_whole() -> None:
    told = "1 acknowledged record lost: the configuration permits it"
    for metrics in ({}, None, {"outcomes": {"send": {"ok": 0}}}):
        assert str(permitted_loss({**verdict(lost(1, {}, cell=None)), "metrics": metrics})) == told


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"anomalies": 3},
        {"anomalies": [3]},
        verdict({**lost(1, {}), "count": "x"}),
        verdict(lost(1, {}, cell={"row": "x"})),
    ],
)
def test_a_verdict_that_cannot_be_understood_tells_of_no_loss(damaged: dict[str, Any]) -> None:
    assert permitted_loss(damaged) is None


@pytest.mark.parametrize(
    ("some", "of", "said"),
    [(260, 845, "31 %"), (1, 1000, "less than 1 %"), (999, 1000, "more than 99 %"), (7, 7, "100 %"), (1, 100, "1 %")],
)
def test_a_share_is_never_rounded_to_nothing_or_to_all(some: int, of: int, said: str) -> None:
    assert percent(some, of) == said
