"""Checks that what a night forbids is read from its matrix again, so that neither file alone can hide a finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from squall.checkers.nightly.matrix import axis_word, changes, expectations, forbidden
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


def test_a_change_of_a_matrix_is_named_by_its_place() -> None:
    planned = {"seeds": 2, "faults": {"links": ["partition"]}, "expect": [{"never": ["lost-write"]}]}
    now = {"seeds": 3, "faults": {"links": ["partition"]}, "expect": [{"never": ["duplicate"]}], "retries": 0}
    assert changes(planned, planned) == []
    assert changes(planned, now) == [
        "seeds was 2, and is 3",
        "expect.0.never was ['lost-write'], and is ['duplicate']",
        "retries = 0 is new",
    ]


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


def test_an_early_night_has_its_matrix_in_a_file_only(tmp_path: Path) -> None:
    files = night(tmp_path, [])
    (files.path / "matrix.toml").write_text('[[expect]]\nwhere = { acks = 1 }\nnever = ["unseen"]\n')
    read = read_night(files.path)
    assert [each.attempt.unexpected for each in facts_of_night(read)] == [("lost-write",)]
    assert not read.problems


def test_a_matrix_that_was_changed_hides_nothing_and_is_told(tmp_path: Path) -> None:
    files = night(tmp_path, [], matrix=NEVER)
    (files.path / "matrix.toml").write_text("seeds = 2\n")
    read = read_night(files.path)
    assert [each.attempt.unexpected for each in facts_of_night(read)] == [("lost-write",)]
    (told,) = read.problems
    assert told.startswith("matrix.toml was changed since the night was planned (expect.0.where.acks = ")
    assert json.loads((files.path / "night.json").read_text())["matrix"] == NEVER
