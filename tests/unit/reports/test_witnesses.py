"""Which of a finding's witnesses are shown, which partitions they leave out, and what is told of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reports.explained import explained
from reports.page import page_of
from reports.problems import problems_of
from reports.run_files import read_run
from tests.unit.reports.conftest import LOSS, LOST, TOPIC

OTHER = "appends-1"


def witness(part: int, off: int, **more: Any) -> dict[str, Any]:
    topic = (TOPIC, OTHER)[part]
    return {"partition": f"{topic}-0", "part": part, "off": off, "val": -1, "op": -1, "proc": -1, "other": -1, **more}


def found(run_dir: Path, *anomalies: dict[str, Any]) -> Path:
    verdict = json.loads((run_dir / "verdict.json").read_text())
    (run_dir / "verdict.json").write_text(json.dumps({**verdict, "anomalies": anomalies}))
    return run_dir


MANY = {**LOSS, "count": 705, "partitions": {f"{TOPIC}-0": 5, f"{OTHER}-0": 700}, "witnesses": [witness(0, 60)]}
OF_BOTH = {**MANY, "witnesses": [witness(0, 60, op=9), witness(1, 7, op=40), witness(1, 9, op=41)]}


def test_partitions_without_a_witness_are_named(lost_dir: Path) -> None:
    text = explained(found(lost_dir, MANY), "lost-write")
    assert "\n  Looked at 1 of 705. appends-1-0 (700) is not among them.\n" in text
    assert "<p>appends-1-0 (700) is not among them.</p>" in page_of(lost_dir)
    assert "\n  Looked at 3 of 705.\n" in explained(found(lost_dir, OF_BOTH), "lost-write")
    assert "not among them" not in page_of(lost_dir)


def test_of_many_partitions_without_a_witness_those_with_most_are_named(lost_dir: Path) -> None:
    counts = {f"t-{number}": 1 + number for number in range(20)}
    text = explained(found(lost_dir, {**MANY, "count": 215, "partitions": counts}), "lost-write", 1000)
    named = ", ".join(f"t-{number} ({1 + number})" for number in range(19, 13, -1))
    assert f"{named} and 14 more partitions are not among them." in text


def test_stories_begin_with_the_partition_that_has_most_and_tell_each_finding_before_a_second_partition(
    lost_dir: Path,
) -> None:
    reorder = {**LOSS, "name": "send-reorder", "partitions": {"t-2": 1}, "witnesses": [witness(0, 1, partition="t-2")]}
    problems = problems_of(read_run(found(lost_dir, OF_BOTH, reorder)))
    assert [(each.name, each.where, each.offsets) for each in problems] == [
        ("lost-write", f"{OTHER}-0", (7,)),
        ("send-reorder", "t-2", (1,)),
        ("lost-write", f"{TOPIC}-0", (60,)),
    ]


def test_the_first_witness_of_each_partition_leads_to_its_story(lost_dir: Path) -> None:
    own, second = witness(0, 60, op=9, val=LOST, proc=3), witness(1, 7, op=40)
    page = page_of(found(lost_dir, {**MANY, "witnesses": [second, own]}))
    shown = page[page.index('<details class="witness" id="witness-lost-write-reads-1"') :]
    assert '<a href="#story-0">What happened to it' in shown


def test_what_is_told_in_detail_says_which_witness_it_is_about(lost_dir: Path) -> None:
    text = explained(found(lost_dir, {**LOSS, "witnesses": [witness(0, 59), witness(0, 60)]}), "lost-write", 1000)
    assert "\n  In detail, lost-write (reads), cause 1: appends-0-0, offset 59\n\n  What was seen: " in text
