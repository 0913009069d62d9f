"""Every anomaly has a story that answers what a reader asks first; an answer that is not known says what is missing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from squall.reports import outputs, owners
from squall.reports.answers import AnsweredQuestion
from squall.reports.explained import explained
from squall.reports.page import render
from squall.reports.run_files import read_run
from squall.reports.story_index import RenderedStory, rendered_stories
from tests.support.histories import anomaly_runs
from tests.support.histories.anomaly_runs import NAMES
from tests.support.histories.kafka_lines import LOSS, write_logs
from tests.unit.reports.conftest import KILL, TOPIC, at
from tests.unit.reports.test_foreign_brokers import as_kafka

INSIDE = ("Who led, ISR and HW then", "Who had it", "Who was elected", "What was truncated")
"""Questions that only brokers can answer."""
OF_MEMBERS = ("revoked-read",)
"""Anomalies that members of a group alone have caused."""
RECORD = r"record \d+ of process \d+"
SEEN = {
    "lost-write": r"at offset 1 \(the highest offset that any reader saw: 2\)",
    "duplicate": r"\(the lowest offset it was read at: 0\)",
    "inconsistent-offset": rf"the value that displaced this one: {RECORD}",
    "send-reorder": r"how many of its producer's records in this partition overtook earlier ones: 1",
    "replica-divergence": r"the node whose log differs: 2",
    "poll-skip": r"Before it, at .* poll from 0 got offset 0 .* poll from 2 got offset 2",
    "int-poll-skip": r"got offsets 0 to 2 \(2 records\)",
    "nonmonotonic-poll": r"Before it, .* got offsets 0 to 1 .* got offsets 1 to 2",
    "thrown-back": r"process 1, at position 3, was told LOG_TRUNCATED",
    "offset-regression": r"Before it, .* high watermark 5.* high watermark 4",
    "lso-violation": r"high watermark 4, last stable offset 5",
    "zombie-write": r"the process that had taken over: 1",
    "lost-position": r"the position that was committed before: 5",
    "commit-ahead": r"where the member resumed: 3",
    "dual-ownership": r"the process that had it first: 0",
    "eos-duplicate": r"in t-1 at offset 2 \(the value of the first of these outputs: record 0 of process 1\)",
    "eos-loss": r"the position that was committed: \d",
    "hanging-txn": r"high watermark 2, last stable offset 0",
    "stuck-producer": r"for 20.00 s",
    "stuck-consumer": r"for 20.00 s",
    "not-converged": r"After healing it lacked: leader none",
}
"""Anomaly -> what the first answer must have in it."""
WITHOUT_RECORD = (
    "thrown-back",
    "offset-regression",
    "lso-violation",
    "lost-position",
    "dual-ownership",
    "uncommitted-offset",
    "stuck-producer",
    "stuck-consumer",
    "not-converged",
)


def telling_of(run: Path) -> RenderedStory:
    (telling,) = rendered_stories(read_run(run))
    return telling


def text_of(answers: tuple[AnsweredQuestion, ...], question: str) -> str:
    return next(answer.text for answer in answers if answer.question == question)


@pytest.mark.parametrize("name", NAMES)
def test_each_anomaly_has_a_story_that_answers_every_question(name: str, tmp_path: Path) -> None:
    telling = telling_of(anomaly_runs.write(tmp_path / "run", name))
    assert telling.problem.name == name and len(telling.lines) >= 4
    answers = telling.answers
    more = 3 * (name == "commit-ahead") + (name in outputs.ABOUT + owners.ABOUT)
    assert len(answers) == (6 if name in OF_MEMBERS else 9 + more), answers
    assert all(answer.text.endswith(".") for answer in answers), answers
    assert not any("  " in answer.text or "not known" in answer.text.lower() for answer in answers), answers
    assert re.search(SEEN.get(name, r"in t-0"), text_of(answers, "What was seen"))
    if name in outputs.ABOUT:
        assert re.search(rf"^The input is {RECORD} .* by process \d+", text_of(answers, outputs.QUESTION))
    if name in owners.ABOUT:
        said = text_of(answers, owners.QUESTION)
        assert re.search(r"Process 0 \(member .* of g\) owned t-0 in generation or member epoch 1 from [\d.]+ s", said)
        assert re.search(r"Process 0 gave it up at [\d.]+ s\. Process 1 .* in generation or member epoch 2", said)
    written = text_of(answers, "When it was written")
    if name in WITHOUT_RECORD:
        assert written.startswith("It is about no single record.")
    else:
        assert re.search(rf"\({RECORD}\) was handed over at [\d.]+ s|Nobody sent {RECORD}", written), written
    if name in OF_MEMBERS:
        assert not {*INSIDE} & {answer.question for answer in answers}, "brokers have no part in it"
        return
    assert re.search(r"epoch \d.*ISR \d|in sync: \d", text_of(answers, "Who led, ISR and HW then"))
    assert re.match(r"kill of broker 1, [\d.]+ s to [\d.]+ s\.$", text_of(answers, "Which fault"))
    assert "Broker 2 in epoch 1 at" in text_of(answers, "Who was elected")
    assert "by controller 3 (ISR 2, 3)" in text_of(answers, "Who was elected")
    assert "Broker 1 truncates its log" in text_of(answers, "What was truncated")
    assert re.search(r"[Rr]ead|got", text_of(answers, "Who read it"))


def test_a_reader_that_heard_the_same_again_and_again_is_told_in_one_sentence(tmp_path: Path) -> None:
    run = anomaly_runs.write(tmp_path / "run", "thrown-back")
    lines = (run / "history.jsonl").read_text().splitlines(keepends=True)
    where = next(number for number, line in enumerate(lines) if '"log_truncated"' in line)
    lines[where:where] = [lines[where]] * 300
    (run / "history.jsonl").write_text("".join(lines))
    seen = text_of(telling_of(run).answers, "What was seen")
    assert seen.count("LOG_TRUNCATED") == 1
    assert re.search(r"was told that the position is impossible 300 more times, until [\d.]+ s\.", seen), seen


@pytest.mark.parametrize("name", NAMES)
def test_explain_tells_each_anomaly_with_its_answers(name: str, tmp_path: Path) -> None:
    text = explained(anomaly_runs.write(tmp_path / "run", name), name)
    assert text.startswith(f"{name}") and "\n=====" in text
    assert "  What was seen: " in text and "  Who read it: " in text


@pytest.mark.parametrize("name", NAMES)
def test_without_traces_an_answer_says_which_file_is_missing(name: str, tmp_path: Path) -> None:
    run = anomaly_runs.write(tmp_path / "run", name)
    for trace in run.glob("nodes/*/trace.jsonl"):
        trace.unlink()
    for telling in rendered_stories(read_run(run)):
        for question in INSIDE if name not in OF_MEMBERS else ():
            said = text_of(telling.answers, question)
            assert said == "Not known: the run directory has no trace of a broker (nodes/N/trace.jsonl).", (
                question,
                said,
            )
    text = explained(run, name)
    assert ("has no trace" in text) is (name not in OF_MEMBERS)


def test_the_answers_of_kafka_are_those_of_its_logs(lost_dir: Path) -> None:
    as_kafka(lost_dir)
    write_logs(lost_dir, LOSS)
    answers = telling_of(lost_dir).answers
    assert "Broker 1 led in epoch 0 when A was acknowledged; ISR 1, 2, 3" in text_of(answers, INSIDE[0])
    assert "Broker 2 in epoch 1 at 3.901 s, by controller 2 (ISR 2, 3)." in text_of(answers, "Who was elected")
    assert "from 90 to 50" in text_of(answers, "What was truncated")


def test_a_logger_that_was_off_is_the_answer(lost_dir: Path) -> None:
    as_kafka(lost_dir)
    roles = "(state.change.logger)"
    write_logs(lost_dir, {node: [line for line in lines if roles not in line] for node, lines in LOSS.items()})
    for line in telling_of(lost_dir).answers:
        if line.question == "Who led, ISR and HW then":
            assert "turn the logger state.change.logger on at INFO" in line.text


def test_what_came_after_the_loss_is_no_part_of_the_answers(lost_dir: Path) -> None:
    first = (lost_dir / "nemesis.jsonl").read_text()
    later = {**KILL, "id": 1, "began": at(9.5), "ended": at(10.5), "target": {"asked": "node:3", "resolved": [3]}}
    (lost_dir / "nemesis.jsonl").write_text(first + json.dumps(later) + "\n")
    answers = telling_of(lost_dir).answers
    assert "No log held A any more from 5.500 s on." in text_of(answers, "Who had it")
    assert text_of(answers, "Which fault") == "kill of broker 1, 3.000 s to 6.000 s."


def test_the_page_has_the_answers(tmp_path: Path) -> None:
    page = render(anomaly_runs.write(tmp_path / "run", "lost-write")).read_text()
    assert "<dt>Who was elected</dt>" in page and "by controller 3 (ISR 2, 3)" in page


def test_of_a_broken_invariant_only_what_came_before_it_is_told(lost_dir: Path) -> None:
    later = {**KILL, "id": 1, "target": {"asked": "leader", "resolved": [3]}, "began": at(9.0), "ended": at(9.5)}
    with (lost_dir / "nemesis.jsonl").open("a") as lines:
        lines.write(json.dumps(later) + "\n")
    (lost_dir / "verdict.json").unlink()
    held = {"leader_epoch": 1, "leo": 61, "hw": 60, "isr": [3, 2]}
    replicas = {"1": {**held, "leader_epoch": 0, "leads": False}, "2": {**held, "leads": True}}
    details = {"replicas": replicas, "records": [{"offset": 58, "says": "it says so"}]}
    violation = {"name": "weak-isr", "message": "group g: it is so", "t": 8.5, "node": 2, "topic": TOPIC,
                 "partition": 0, "details": details}  # fmt: skip
    broke = [violation, {**violation, "t": 4.0, "partition": 1, "details": {}}]
    (lost_dir / "violations.json").write_text(json.dumps(broke))
    telling, *_ = rendered_stories(read_run(lost_dir))
    said = {answer.question: answer.text for answer in telling.answers}
    assert said["Which fault"] == "kill of broker 1, 3.000 s to 6.000 s."
    assert "Broker 2 in epoch 1 at" in said["Who was elected"]
    assert said["Who led, ISR and HW then"] == (
        "At 5.500 s broker 2 led in epoch 1 (LEO 61, HW 60), in sync: 2, 3. Broker 1 was in epoch 0 (LEO 61, HW 60)."
    )
    assert said["When it was written"].startswith(f"Record 58 of {TOPIC}-0: it says so.")
    assert "Record 58: it says so" in telling.text
    assert max(float(t.removesuffix(" s")) for t, _ in telling.lines) == 5.5
    earlier = {answer.question: answer.text for answer in rendered_stories(read_run(lost_dir))[-1].answers}
    assert earlier["Which fault"] == "No fault had begun."
