"""Checks which of a finding's witnesses are shown, which partitions they leave out, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from squall.reports.explained import explained
from squall.reports.page import page_of
from squall.reports.problems import problems_of
from squall.reports.run_files import read_run
from tests.support.histories.story_script import run_script
from tests.unit.reports.conftest import LOSS, LOST, TOPIC, event, leads

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


ACKNOWLEDGED_AGAIN = {**LOSS, "name": "stale-ack", "evidence": "acks", "count": 1, "partitions": {f"{TOPIC}-0": 1},
                      "witnesses": [witness(0, 60, val=LOST + 1, op=10, proc=3)]}  # fmt: skip


def test_a_finding_that_follows_from_a_loss_has_its_cause_and_its_election(lost_dir: Path) -> None:
    text = explained(found(lost_dir, LOSS, ACKNOWLEDGED_AGAIN), "stale-ack", 1000)
    cut = "5.500 s: Broker 1 truncates appends-0-0 from 90 to 50: epoch 0 ends at 50."
    assert f"Cause 1, of 1 witness: that of lost-write: {cut}\n" in text
    # This record was sent after the election, at 4.4 s; the lost one had its offset before.
    assert "Who was elected: Broker 2 in epoch 1 at 4.000 s" in text
    assert "that of" not in explained(found(lost_dir, ACKNOWLEDGED_AGAIN), "stale-ack", 1000)


def test_a_partition_that_kept_its_leader_did_so_in_the_time_of_the_record(lost_dir: Path) -> None:
    late = {**LOSS, "name": "send-reorder", "evidence": "", "witnesses": [witness(0, 61, val=LOST + 2, op=11, proc=3)]}
    (lost_dir / "nodes" / "2" / "trace.jsonl").write_text(json.dumps(leads(5.0, 1, 50, [2, 3])) + "\n")
    text = explained(found(lost_dir, late), "send-reorder", 1000)
    assert "Who was elected: Nobody from 3.500 s to 13.000 s: the partition kept its leader." in text


def test_what_is_told_in_detail_says_which_witness_it_is_about(lost_dir: Path) -> None:
    text = explained(found(lost_dir, {**LOSS, "witnesses": [witness(0, 59), witness(0, 60)]}), "lost-write", 1000)
    assert "\n  In detail, lost-write (reads), cause 1: appends-0-0, offset 59\n\n  What was seen: " in text


def test_the_end_of_the_cluster_is_no_part_of_a_witness_s_story(lost_dir: Path) -> None:
    trace = lost_dir / "nodes" / "3" / "trace.jsonl"
    recovered = [event(at_s, "recovered", topic=TOPIC, partition=0, leo=leo) for at_s, leo in ((14.5, 8), (15.5, 9))]
    trace.write_text(trace.read_text() + "".join(json.dumps(each) + "\n" for each in recovered))
    text = explained(lost_dir, "lost-write").partition("In detail")[0]
    assert "Broker 3 recovers its log up to 8." in text and "Broker 3 recovers its log up to 9." not in text


AFTER = "8.000..8.500 kill 3\n8.500 broker 3 node_started id=3 incarnation=2\n"


@pytest.mark.parametrize("name", ["lost-write", "replica-divergence"])
def test_the_story_of_a_loss_ends_with_it(name: str) -> None:
    script = Path("tests/scripts/stories/a_zombie_acknowledges_alone.txt").read_text().replace("lost-write", name)
    before, finals, rest = script.partition("9.0..9.5 finals")
    told = run_script(f"{before}{AFTER}{finals}{rest}").rpartition("----\n")[2]
    assert ("Broker 3 is killed" in told) is (name != "lost-write")
    assert "The ISR is 1, 2, 3 now" in told and "The final reads do not find A" in told


def test_findings_of_one_anomaly_that_are_judged_differently_keep_their_own_witnesses(lost_dir: Path) -> None:
    forbidden = {**MANY, "count": 1, "witnesses": [witness(1, 7, op=40)]}
    permitted = {**MANY, "count": 2, "permitted": True, "witnesses": [witness(0, 60, op=9), witness(0, 61, op=10)]}
    page = page_of(found(lost_dir, forbidden, permitted))
    assert [page.count(f'id="witness-lost-write-reads-{number}"') for number in range(4)] == [1, 1, 1, 0]
