"""A story that blames a client tells what that client did, and how others were served meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from squall.checkers.anomalies import stuck
from squall.reports.explained import explained
from squall.reports.page import render
from squall.reports.problems import StorySubject
from squall.reports.run_files import read_run
from squall.reports.run_list import runs_in
from squall.reports.story import stories_of
from squall.reports.story_client import lines_of, standstill_of
from squall.reports.story_facts import PartitionFacts
from squall.reports.summary import unavailable_to
from tests.support.histories.story_script import facts_of_script
from tests.unit.reports.conftest import LOSS, METRICS, TOPIC, VALID, at, write_json
from tests.unit.reports.test_words import told

PROGRAM = "the program under test"
BLAMED = {
    **LOSS,
    "name": stuck.PRODUCER,
    "evidence": stuck.CLIENT,
    "count": 1,
    "blames": PROGRAM,
    "witnesses": [{"partition": f"{TOPIC}-0", "part": 0, "off": -1, "val": -1, "op": -1, "proc": -1, "other": 10**10}],
}
SERVED = "fresh 2\n4.0 sends 2 9\n4.1 told 9 ok 3\n"


def blaming(script: str, blames: str = "the_client_library_x") -> PartitionFacts:
    return facts_of_script(f"about stuck-producer appends-0-0 blames={blames}\n{script}")


@pytest.fixture
def stuck_dir(lost_dir: Path) -> Path:
    """Process 3 is a program that acknowledges nothing after its first two records; process 4 writes after healing."""
    metrics = {**METRICS, "unavailable": {"overall": None, "partitions": {f"{TOPIC}-0": {"s": 26.2, "from_s": 6.4}}}}
    verdict = {**VALID, "verdict": "invalid", "blames": PROGRAM, "anomalies": [BLAMED], "metrics": metrics}
    write_json(lost_dir / "verdict.json", verdict)
    write_json(lost_dir / "metrics.json", metrics)
    fresh: list[dict[str, Any]] = [
        {"e": "p", "p": 4, "role": "producer", "settings": {"after_healing": True}},
        {"e": "i", "op": 12, "p": 4, "f": "send", "t": at(8.4), "part": 0, "v": 4 << 40},
        {"e": "c", "op": 12, "st": 0, "t": at(8.5), "off": 61},
        {"e": "c", "op": 11, "st": 2, "t": at(11.9), "off": -1, "err": "CLIENT_ENDED"},
    ]
    text = (
        (lost_dir / "history.jsonl")
        .read_text()
        .replace('"role": "producer"', '"client": "program", "role": "producer"')
    )
    (lost_dir / "history.jsonl").write_text(text + "".join(json.dumps(line) + "\n" for line in fresh))
    return lost_dir


def test_a_story_that_blames_a_program_has_a_lane_for_it_and_for_the_fresh_client(stuck_dir: Path) -> None:
    (story,) = stories_of(read_run(stuck_dir))
    assert story.title == f"stuck-producer in {TOPIC}-0, by {PROGRAM}"
    assert {"process 3 (program)", "process 4 (fresh client)"} <= {*story.lanes}
    assert (
        f"At 4.410 s {PROGRAM} acknowledged B (offset 60) and then nothing until its load ended at 9.900 s"
        in story.summary
    )
    assert (
        "a fresh client's write to the same partition, D (offset 61), was acknowledged, 2.090 s after B"
        in story.summary
    )


def test_its_cause_is_what_the_program_did(stuck_dir: Path) -> None:
    text = " ".join(explained(stuck_dir, stuck.PRODUCER).split())
    assert f"Cause 1, of 1 witness: 4.410 s: {PROGRAM.capitalize()} acknowledged record 8 of process 3" in text
    assert "the brokers' traces show none" not in text


def test_what_stood_still_was_unavailable_to_the_program_and_not_to_all(stuck_dir: Path) -> None:
    assert f"longest unavailability to {PROGRAM}" in told(stuck_dir)
    page = render(stuck_dir).read_text()
    assert f"<small>{TOPIC}-0, to {PROGRAM}</small>" in page
    assert f"In {TOPIC}-0 these are the writes of {PROGRAM}" in page
    assert runs_in(stuck_dir.parent)[0].unavailable_s is None


def test_an_outage_before_healing_that_was_longer_was_one_to_all(stuck_dir: Path) -> None:
    verdict = json.loads((stuck_dir / "verdict.json").read_text())
    verdict["metrics"]["unavailable"]["partitions"][f"{TOPIC}-0"] = {"s": 3.0, "from_s": 5.0}
    assert unavailable_to(verdict) == {f"{TOPIC}-0": PROGRAM}
    verdict["metrics"]["after_healing"]["healed_s"] = 8.5
    assert unavailable_to(verdict) == {}


def test_a_partition_that_served_nobody_was_unavailable_to_all(stuck_dir: Path) -> None:
    verdict = json.loads((stuck_dir / "verdict.json").read_text())
    write_json(stuck_dir / "verdict.json", {**verdict, "blames": "", "anomalies": [{**BLAMED, "blames": ""}]})
    assert "longest unavailability  " in told(stuck_dir)
    assert f"to {PROGRAM}" not in render(stuck_dir).read_text()
    assert runs_in(stuck_dir.parent)[0].unavailable_s == 26.2
    (story,) = stories_of(read_run(stuck_dir))
    assert "then nothing" not in story.summary and "process 3" in story.lanes


def test_of_a_program_that_went_on_its_longest_time_without_an_acknowledgement_is_told() -> None:
    facts = blaming(
        f"1.0 sends 0 0\n1.1 told 0 ok 0\n2.0 sends 0 1\n5.0 told 1 ok 4\n5.1 sends 0 2\n9.0 told 2 ok 5\n{SERVED}"
    )
    still = standstill_of(facts)
    assert still is not None and still.recovered
    assert (still.since, still.until) == (5.0, 9.0)
    assert [each.value for each in still.unanswered] == [2]
    assert still.last is not None and still.last.value == 1


def test_a_program_that_acknowledged_nothing_has_a_story_too() -> None:
    still = standstill_of(blaming(f"1.0 sends 0 0\n9.0 told 0 info CLIENT_ENDED\n{SERVED}"))
    assert still is not None and still.last is None
    assert (still.since, still.until, still.recovered) == (4.1, 9.0, False)


@pytest.mark.parametrize("facts", [blaming("1.0 sends 0 0\n"), blaming(f"1.0 sends 0 0\n{SERVED}", "")])
def test_without_a_fresh_client_that_was_served_or_without_blame_nobody_stood_still(facts: PartitionFacts) -> None:
    assert standstill_of(facts) is None


def test_a_reader_that_is_blamed_is_told_with_who_got_further(stuck_dir: Path) -> None:
    problem = StorySubject(stuck.CONSUMER, "", TOPIC, 0, process=8, blames="the client library x")
    (lines,) = lines_of(read_run(stuck_dir), [problem])
    assert [line.text for line in lines] == ["Process 5, a fresh reader, got offset 60."]
