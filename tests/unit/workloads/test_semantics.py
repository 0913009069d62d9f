"""The workload `semantics`: what each application promises, and how what it lost and doubled is shown."""

from __future__ import annotations

from typing import Any

import pytest

from squall.workloads.semantics.section import kept, section_of

MOST, LEAST, EXACTLY = "at most once", "at least once", "exactly once"


# ---------------------------------------------------------------------------------------------------------- the section


def application(lost: int | None, doubled: int) -> dict[str, Any]:
    waiting = None if lost is None else 0
    return {"inputs": 1200, "outputs": 1100, "lost": lost, "doubled": doubled, "further": doubled, "waiting": waiting}


@pytest.mark.parametrize(
    ("name", "lost", "doubled", "promise"),
    [
        (MOST, 7, 0, True), (MOST, 0, 1, False), (MOST, None, 0, None),
        (LEAST, 0, 7, True), (LEAST, 1, 0, False), (LEAST, None, 7, None),
        (EXACTLY, 0, 0, True), (EXACTLY, 1, 0, False), (EXACTLY, None, 1, False), (EXACTLY, None, 0, None),
    ],
)  # fmt: skip
def test_a_promise_is_kept_broken_or_not_known(name: str, lost: int | None, doubled: int, promise: bool | None) -> None:
    assert kept(name, application(lost, doubled)) is promise


@pytest.mark.parametrize("name", [MOST, LEAST, EXACTLY])
def test_an_application_that_had_no_input_has_shown_nothing(name: str) -> None:
    assert kept(name, {**application(0, 0), "inputs": 0}) is None


def test_the_section_has_a_row_for_each_application() -> None:
    figures = {MOST: application(5, 0), LEAST: application(0, 12), EXACTLY: application(None, 0)}
    section = section_of({"name": "semantics", "applications": figures, "groups": {}})
    assert section is not None
    assert "At most once: 5 of 1,200 inputs lost, 0 doubled." in section.sentence
    (table,) = section.tables
    assert [[row[0], row[4], row[5], row[-1]] for row in table.rows] == [
        [MOST, "5", "0", "yes"],
        [LEAST, "0", "12", "yes"],
        [EXACTLY, "?", "0", "not known"],
    ]


def test_members_of_each_application_have_lanes_of_their_own() -> None:
    held = [{"from_s": 1.0, "to_s": 3.0, "partitions": ["in-0"], "ended": ""}]
    group = {
        "generations": 1, "began": [{"generation": 1, "from_s": 0.5}], "rebalances": [], "unowned": None,
        "unfair": {"most": 0, "generations": 0}, "members": [{"process": 4, "held": held}],
    }  # fmt: skip
    applications = dict.fromkeys((MOST, LEAST), application(0, 0))
    section = section_of({"applications": applications, "groups": dict.fromkeys(applications, group)})
    assert section is not None and section.strip is not None
    names = [lane.name for lane in section.strip.lanes]
    assert names == [MOST, f"{MOST}, process 4", LEAST, f"{LEAST}, process 4"]


def test_a_run_that_made_no_outputs_has_no_section() -> None:
    assert section_of({"name": "semantics"}) is None
