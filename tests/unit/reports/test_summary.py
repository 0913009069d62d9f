"""Checks what a failing page says first: how much, where, and whose expectation is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from squall.checkers.anomalies.registry import CATALOG, FOUND
from squall.reports.checks import FAILED, checks_of, sentence
from squall.reports.junit import write_junit
from squall.reports.page import render
from squall.reports.run_files import read_run
from squall.reports.stories import StoryLine, causes_of
from squall.reports.summary import broken


def found(name: str, count: int, partitions: dict[str, int], permitted: bool = False) -> dict[str, Any]:
    judged = {"permitted": permitted, "why": "", "evidence": "", "definition": "", "witnesses": []}
    return {"name": name, "count": count, "partitions": partitions, **judged}


def run_of(path: Path, *anomalies: dict[str, Any], expect: str = "config", acked: int = 46_386) -> Path:
    metrics = {
        "schema": 1,
        "outcomes": {"send": {"ok": acked}},
        "partitions": {"t-0": {"part": 0, "acked": 30_000}, "t-1": {"part": 1, "acked": 16_386}},
    }
    verdict = {"schema": 1, "run": "r", "verdict": "invalid", "expect": expect, "reasons": ["lost-write: 14544"]}
    guarantee = {"row": "acks=all, min ISR 2 or more", "fault_classes": [], "permitted": {}, "sources": []}
    (path / "metrics.json").write_text(json.dumps(metrics))
    (path / "verdict.json").write_text(json.dumps({**verdict, "guarantee": guarantee, "anomalies": list(anomalies)}))
    (path / "run.json").write_text(json.dumps({"schema": 1, "run": "r", "began_ns": 10**12}))
    return path


def test_a_loss_is_told_as_a_share_and_by_partition(tmp_path: Path) -> None:
    run = run_of(tmp_path, found("lost-write", 14_500, {"t-0": 10_000, "t-1": 4_500}), found("unseen", 44, {"t-1": 44}))
    said = sentence(read_run(run))
    assert said.startswith("14,544 of 46,386 acknowledged records were lost (31 %).")
    assert "This breaks what the configuration promises (acks=all, min ISR 2 or more)." in said
    assert "Lost by partition: t-0: 10,000 of 30,000, t-1: 4,544 of 16,386." in said


def test_readers_that_are_stuck_in_many_partitions_are_counted_once_each(tmp_path: Path) -> None:
    """With each kind of evidence: the load's readers, and final reads."""
    live = {**found("stuck-consumer", 8, {"t-0": 4, "t-1": 4}), "processes": [3, 4]}
    final = {**found("stuck-consumer", 4, {"t-0": 2, "t-1": 2}), "processes": [4, 9], "evidence": "final"}
    written = {**found("stuck-producer", 2, {"t-0": 2}), "processes": [-1]}
    assert broken(read_run(run_of(tmp_path, live, final, written))) == [
        "3 readers got nothing for too long, and no fault was on.",
        "1 partition or producer had no acknowledgement for too long, and no fault was on.",
    ]


def overtaken(count: int, *witnesses: tuple[str, int, int]) -> dict[str, Any]:
    """send-reorder. witnesses: partition, process, and how many overtook."""
    rows = [{"partition": partition, "proc": proc, "other": other} for partition, proc, other in witnesses]
    named = {"witnesses": rows, "processes": [0, 1], "partitions": {"t-0": count}}
    return {**found("send-reorder", count, {}), **named}


def test_records_out_of_order_are_told_from_both_sides(tmp_path: Path) -> None:
    """Check both counts: how many overtook is a figure of the producer in a partition, which all witnesses of both
    repeat.
    """
    three, two = [("t-0", 0, 37)] * 3, [("t-1", 1, 5)] * 2
    several = run_of(tmp_path, overtaken(3, *three), {**overtaken(2, *two), "evidence": "reads"})
    assert broken(read_run(several)) == ["5 records were stored after 42 that were sent later."]
    one = run_of(tmp_path, overtaken(1, ("t-0", 0, 37)))
    assert broken(read_run(one)) == ["1 record was stored after 37 that were sent later."]
    not_all_named = run_of(tmp_path, overtaken(4, *three))
    assert broken(read_run(not_all_named)) == ["4 records were stored after others that were sent later."]


def test_what_is_permitted_is_no_part_of_what_is_broken(tmp_path: Path) -> None:
    run = run_of(tmp_path, found("lost-write", 9, {"t-0": 9}, permitted=True), found("duplicate", 2, {"t-1": 2}))
    said = sentence(read_run(run))
    assert said.startswith("2 records stand at two offsets.")
    assert "All in t-1. Beside that, 9 of 46,386 acknowledged records lost" in said


def test_the_promises_that_are_broken_are_named_and_not_all_that_was_promised(tmp_path: Path) -> None:
    cells = [{"row": row, "under": "P", "source": ""} for row in ("one request in flight", "replicated log")]
    wrong = [{**found("send-reorder", 1, {}), "cell": cells[0]}, {**found("phantom", 1, {}), "cell": cells[1]}]
    said = sentence(read_run(run_of(tmp_path, *wrong, {**found("unseen", 1, {}, permitted=True), "cell": cells[0]})))
    assert "This breaks what the configuration promises (one request in flight; replicated log)." in said


def test_the_expectation_of_the_flag_is_named_where_the_flag_asked_for_it(tmp_path: Path) -> None:
    lost = found("lost-write", 1, {"t-0": 1})
    run = run_of(tmp_path, lost, expect="safe")
    assert "This breaks what you asked for (--expect safe)." in sentence(read_run(run))
    assert "less than 1 %" in sentence(read_run(run))
    why = "not permitted: you asked for --expect safe, which permits no anomaly; the configuration would permit it"
    run = run_of(tmp_path, {**lost, "why": why}, expect="safe")
    assert f" N{why[1:]}. All in t-0." in sentence(read_run(run))


def test_every_anomaly_that_is_looked_for_says_what_it_means() -> None:
    assert [name for name in FOUND if not (CATALOG[name].meaning and CATALOG[name].meaning_of_one)] == []
    assert [name for name in FOUND if CATALOG[name].meaning == CATALOG[name].meaning_of_one] == []


def test_one_of_something_has_a_singular(tmp_path: Path) -> None:
    run = run_of(tmp_path, found("stuck-producer", 1, {"t-1": 1}), found("duplicate", 2, {"t-1": 2}))
    one, two = broken(read_run(run))
    assert one == "1 partition or producer had no acknowledgement for too long, and no fault was on."
    assert two == "2 records stand at two offsets."
    (lost,) = broken(read_run(run_of(tmp_path, found("lost-write", 1, {"t-0": 1}))))
    assert lost == "1 of 46,386 acknowledged records was lost (less than 1 %)."


def test_a_broken_invariant_is_a_check_with_definition_and_source_on_page_and_in_junit(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    violation = {"name": "weak-isr", "message": "high watermark 2", "t": 3.5, "node": 3, "topic": "t", "partition": 0}
    known = {"definition": "Each member of the ISR holds what is committed.", "source": "KIP-497"}
    (run / "violations.json").write_text(json.dumps([{**violation, **known}]))
    (first, *_) = checks_of(read_run(run))
    assert (first.title, first.state, first.count, first.definition) == (
        "invariant weak-isr",
        FAILED,
        1,
        known["definition"],
    )
    assert first.moments == ("3.500 s  t-0, broker 3: high watermark 2",)
    assert "1 broken invariant: weak-isr." in sentence(read_run(run))
    # A moment is one line of text: as a row of time and text it had a word in each line.
    assert '<ol class="story moments">\n<li>3.500 s  t-0, broker 3: high watermark 2</li>' in render(run).read_text()
    assert "ol.story.moments li { display: block; }" in render(run).read_text()
    for page in (render(run), write_junit(run)):
        text = page.read_text()
        assert known["definition"] in text
        assert "KIP-497" in text
        assert "t-0, broker 3: high watermark 2" in text


def test_witnesses_of_one_truncation_have_one_cause() -> None:
    def story(offset: int) -> list[StoryLine]:
        cut = f"Broker 1 truncates t-0 from 75 to 49, which covers {offset}: diverging epoch."
        end = StoryLine(20.0, "No final read has returned it.", grave=True)
        return [
            StoryLine(6.0 + offset / 100, f"The send is acknowledged at offset {offset}."),
            StoryLine(10.4, cut, True),
            end,
        ]

    cause = "10.400 s: Broker 1 truncates t-0 from 75 to 49: diverging epoch."
    assert causes_of(story(50)) == causes_of(story(51)) == [cause]
    assert causes_of(story(50)[:1]) == []
