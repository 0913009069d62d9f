"""Checks that what a night forbids is read from its matrix again, so that neither file alone can hide a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.checkers.nightly.matrix import axis_word, expectations, forbidden
from squall.checkers.nightly.night import read_night
from squall.checkers.nightly.runs import facts_of_night
from squall.reports import run_list
from tests.support.nightly.files import NightFiles

LOST = {"anomalies": [{"name": "lost-write", "permitted": True}, {"name": "duplicate", "permitted": False}]}
NEVER = {"expect": [{"where": {"acks": ["1", "0"]}, "never": ["lost-write"]}]}


def test_values_of_a_matrix_are_words_of_a_cell() -> None:
    told = (
        axis_word("acks", -1),
        axis_word("acks", 1),
        axis_word("target", "ours"),
        axis_word("unclean", False),
        axis_word("idempotence", True),
    )
    assert told == ("all", "1", "squall", "off", "on")


@pytest.mark.parametrize(
    ("where", "never", "found"),
    [
        ({"acks": 1}, ["lost-write"], ("lost-write",)),
        ({"acks": ["all", "1"], "target": "ours"}, ["unseen"], ("lost-write",)),
        ({"acks": 0}, ["lost-write"], ()),
        ({"codec": "none"}, ["lost-write"], ()),
        ({}, ["duplicate"], ()),
    ],
)
def test_only_what_is_permitted_and_meets_an_expectation_is_forbidden(
    where: dict[str, Any], never: list[str], found: tuple[str, ...]
) -> None:
    expected = expectations({"expect": [{"where": where, "never": never}, "no table"]})
    assert forbidden(expected, {"acks": "1", "target": "squall"}, LOST["anomalies"]) == found


def night(path: Path, noted: list[str], **head: Any) -> NightFiles:
    """A night of one run of acks=1 that lost a record. noted: in results.jsonl."""
    files = NightFiles(path / "n1", **head)
    files.add("one", acks=1, judged=LOST, unexpected=noted)
    files.write()
    return files


@pytest.mark.parametrize(
    ("noted", "head", "counts", "doubted"),
    [
        (["lost-write"], {"matrix": NEVER}, ("lost-write",), False),
        ([], {"matrix": NEVER}, ("lost-write",), True),
        (["lost-write"], {"matrix": {}}, ("lost-write",), True),
        ([], {"matrix": {}}, (), False),
        ([], {}, (), False),
    ],
)
def test_of_what_was_noted_and_what_the_matrix_says_the_graver_counts(
    noted: list[str], head: dict[str, Any], counts: tuple[str, ...], doubted: bool, tmp_path: Path
) -> None:
    files = night(tmp_path, noted, **head)
    (facts,) = facts_of_night(read_night(files.path))
    assert facts.attempt.unexpected == counts
    assert ("the night noted that it forbids" in facts.trouble) is doubted
    (row,) = run_list.runs_in(files.path / "runs")
    assert (row.verdict == "invalid") is bool(counts)

