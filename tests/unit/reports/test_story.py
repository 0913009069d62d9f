"""Stories from run directories: what they are about, what they know, and that they never take the page with them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from squall.reports import page as page_module
from squall.reports import story_facts
from squall.reports.page import render
from squall.reports.problems import StorySubject, problems_of
from squall.reports.run_files import read_run
from squall.reports.spacetime import draw
from squall.reports.spacetime_layout import lay_out
from squall.reports.story import decimals, stories_of, story_of, text_of
from squall.reports.story_facts import facts_of
from squall.reports.story_logs import ReconstructedReplica, ReplicaLogs
from tests.support.histories.story_script import facts_of_script
from tests.unit.reports.conftest import LOST, TOPIC, at, event, write_lines

SCRIPTS = Path(__file__).parents[2] / "scripts" / "stories"


def test_the_history_is_read_once_for_all_stories(lost_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (lost_dir / "history.jsonl").open("a") as history:
        for line in (
            {"e": "i", "op": 21, "p": 3, "f": "send", "t": at(6.6), "part": 1, "v": LOST + 3},
            {"e": "c", "op": 21, "st": 0, "t": at(6.61), "off": 7},
        ):
            history.write(json.dumps(line) + "\n")
    files = read_run(lost_dir)
    files.part_names[1] = "orders-4"
    lost, other = (
        StorySubject("lost-write", "", TOPIC, 0, (LOST,)),
        StorySubject("unseen", "", "orders", 4, (LOST + 3,)),
    )
    nowhere = StorySubject("unseen", "", "orders", 5)
    asked = [lost, other, nowhere, StorySubject("duplicate", "", TOPIC, 0, (LOST + 1,))]
    one_by_one = [facts_of(files, problem) for problem in asked]
    assert [len(facts.sends) for facts in one_by_one] == [3, 1, 0, 3]
    read: list[Path] = []
    lines_of = story_facts.json_lines
    monkeypatch.setattr(story_facts, "json_lines", lambda path: read.append(path) or lines_of(path))
    assert story_facts.all_facts(files, asked) == one_by_one
    assert read.count(lost_dir / "history.jsonl") == 1


def test_a_valid_run_has_no_story(run_dir: Path) -> None:
    assert stories_of(read_run(run_dir)) == []
    assert 'id="story"' not in render(run_dir).read_text()


def test_the_story_of_a_lost_record_says_who_had_it_and_when_it_was_gone(lost_dir: Path) -> None:
    (story,) = stories_of(read_run(lost_dir))
    text = text_of(story)
    for words in (
        "A: record 7 of process 3 (producer 1 of the plan), offset 60 of epoch 0, acknowledged",
        "B: record 8 of process 3 (producer 1 of the plan), offset 60 of epoch 1, acknowledged",
        "Broker 1 is killed (LEO ≥ 61, HW ≥ 61).",
        "Broker 2 leads in epoch 1 (LEO 50, HW 0), in sync: 2, 3. It does not have A",
        "Its copy of A is gone. No log holds A any more.",
        "The final reads do not find A. Offset 60 holds B.",
        "It was lost at 4.000 s",
    ):
        assert re.sub(r"\s+", " ", words) in re.sub(r"\s+", " ", text), words
    assert story.lanes == ["process 3", "1", "2", "readers"]


def test_times_count_from_the_beginning_of_the_load(lost_dir: Path) -> None:
    files = read_run(lost_dir)
    facts = facts_of(files, problems_of(files)[0])
    assert [round(each.sent, 3) for each in facts.sends] == [2.4, 4.4, 4.5]
    assert facts.sends[2].state == "unknown" and facts.sends[2].done is None
    assert facts.slots == {3: 1}
    assert facts.final_reads == (11.0, 13.0)


def test_a_broken_invariant_has_a_story_and_takes_the_anomalys_records(lost_dir: Path) -> None:
    violation = {"name": "leader-completeness", "message": "broker 2 lacks <offset> 60", "t": 7.0, "node": 2,
                 "topic": TOPIC, "partition": 0, "details": {"offset": 60}}  # fmt: skip
    (lost_dir / "violations.json").write_text(json.dumps([violation]))
    (story,) = stories_of(read_run(lost_dir))
    assert story.title == f"leader-completeness and lost-write in {TOPIC}-0"
    assert "4.000 s  Here leader-completeness is broken: broker 2 lacks <offset> 60." in text_of(story)
    assert "<offset>" not in render(lost_dir).read_text()


@pytest.mark.parametrize("name", ["history.jsonl", "nodes/1/trace.jsonl", "nemesis.jsonl", "verdict.json", "plan.toml"])
@pytest.mark.parametrize("damage", ["gone", "cut", "nonsense"])
def test_damaged_files_never_take_the_page_with_them(lost_dir: Path, name: str, damage: str) -> None:
    path = lost_dir / name
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_text('[1, {"e": "i", "got": 7}]\n{"t": 1, "e": "truncated", "topic": [], "id": "x"}\n')
    assert "could not be told" not in render(lost_dir).read_text()


def test_a_story_that_fails_is_named_and_the_page_stands(lost_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no <idea>")

    monkeypatch.setattr(page_module, "rendered_stories", fails)
    text = render(lost_dir).read_text()
    assert "The story could not be told. ValueError: no &lt;idea&gt;" in text
    assert "INVALID" in text


# ------------------------------------------------------------------------------------------------------------ picture


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_every_story_has_a_picture_with_all_its_lanes_and_moments(path: Path) -> None:
    story = story_of(facts_of_script(path.read_text()))
    svg = draw(story)
    root = ElementTree.fromstring(svg)
    words = " ".join(text for each in root.iter() if (text := each.text))
    for lane in story.lanes:
        assert (f"Broker {lane}" if lane.isdigit() else lane.capitalize()) in words
    for moment in story.moments:
        for line in moment.label:
            assert all(word in words for word in line.split()), line
    assert "<script" not in svg and "http" not in svg.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_rows_never_overlap_and_time_runs_downwards(path: Path) -> None:
    layout = lay_out(story_of(facts_of_script(path.read_text())), 100)
    for above, below in zip(layout.rows, layout.rows[1:], strict=False):
        assert above.y + above.height < below.y
        assert above.t <= below.t
    times = [layout.rows[0].t + n * 0.1 for n in range(80)]
    ys = [layout.y_of(t) for t in times]
    assert ys == sorted(ys)


def test_what_brokers_and_files_say_is_escaped(lost_dir: Path) -> None:
    path = lost_dir / "nodes" / "1" / "trace.jsonl"
    path.write_text(path.read_text().replace("epoch 0 ends at 50", "<script>alert(1)</script>"))
    (story,) = stories_of(read_run(lost_dir))
    ElementTree.fromstring(draw(story))
    assert "<script>alert" not in render(lost_dir).read_text()


def test_an_arrow_begins_where_its_message_was_sent_and_a_lost_fetch_ends_on_its_way(lost_dir: Path) -> None:
    appended = {"n": "broker", "i": 1, "w": 0, "e": "appended", "topic": TOPIC, "partition": 0, "leo": 61, "epoch": 0}
    follows = {"topic": TOPIC, "partition": 0, "leader": 1, "epoch": 0, "leo": 0, "hw": 0, "isr": [1, 2, 3]}
    with (lost_dir / "nodes" / "2" / "trace.jsonl").open("a") as trace:
        trace.write(json.dumps(event(0.6, "became_follower", **follows)) + "\n")
    for node, seconds, role in ((1, 4.401, "leader"), (2, 4.404, "follower")):
        with (lost_dir / "nodes" / str(node) / "trace.jsonl").open("a") as trace:
            line = {**appended, "t": at(seconds) / 1e9, "from": 60 if node == 1 else 0, "role": role}
            trace.write(json.dumps(line) + "\n")
    fetch = {"source": 1, "target": 2, "api": 1, "kind": "response", "correlation_id": 1, "size": 9, "note": ""}
    sent = {**fetch, "t_sent": at(4.403) / 1e9, "t_arrives": at(4.404) / 1e9}
    lost = {**fetch, "t_sent": at(5.0) / 1e9, "t_arrives": at(5.001) / 1e9, "note": "dropped"}
    write_lines(lost_dir / "messages.jsonl", [sent, lost, {"t_sent": "?"}])
    (story,) = stories_of(read_run(lost_dir))
    svg = draw(story)
    assert "<title>Fetch response, sent 2.4030 s</title>" in svg
    assert "<title>Fetch response: lost</title>" in svg


# --------------------------------------------------------------------------------------------------------------- logs


def test_a_log_remembers_of_which_epoch_each_offset_is() -> None:
    log = ReconstructedReplica(1)
    log.write(0, 3, 0)
    log.write(3, 5, 0)
    log.write(5, 6, 2)
    assert [log.epoch_at(offset) for offset in (0, 4, 5, 6)] == [0, 0, 2, None]
    log.hw = 5
    log.cut(4)
    assert (log.leo, log.hw, log.epoch_at(4)) == (4, 4, None)
    log.write(2, 3, 3)
    assert [log.epoch_at(offset) for offset in (1, 2, 3)] == [0, 3, None]


def test_what_was_copied_has_the_epochs_of_the_log_it_came_from() -> None:
    logs = ReplicaLogs()
    logs.of(1).write(0, 3, 0)
    logs.of(1).write(3, 5, 1)
    logs.of(2).copy(1, 6, logs.of(1), 7)
    assert [logs.of(2).epoch_at(offset) for offset in (1, 2, 3, 4, 5)] == [0, 0, 1, 1, 7]
    assert logs.holders(3, 1) == [1, 2]
    assert logs.holders(5, 7) == [2]


def test_four_digits_where_three_would_put_two_moments_at_once() -> None:
    script = "about x appends-0-0\n{} broker 1 became_leader epoch=0 leo=0 hw=0 isr=[1]\n{} sends 0 1"
    for second, digits in (("1.0", 3), ("1.0004", 4)):
        story = story_of(facts_of_script(script.format("1.0", second)))
        assert decimals(story.moments) == digits


def test_a_run_that_stopped_before_its_final_reads_were_over_claims_nothing_of_them(lost_dir: Path) -> None:
    claimed = "The final reads do not find A."
    assert claimed in text_of(stories_of(read_run(lost_dir))[0])
    path = lost_dir / "run.json"
    whole = json.loads(path.read_text())
    began = [phase for phase in whole["phases"] if phase["name"] == "final reads"]
    assert began, "the phase had begun"
    missed = [{"round": 1, "isolation": 0, "records": 3, "missing": {f"{TOPIC}-0": 7}}]
    for stopped in (None, [], missed):
        path.write_text(json.dumps({**whole, "final_reads": stopped}))
        text = text_of(stories_of(read_run(lost_dir))[0])
        assert "final reads" not in text.lower()
    elsewhere = [{"round": 1, "isolation": 0, "records": 3, "missing": {f"{TOPIC}-1": 7}}]
    path.write_text(json.dumps({**whole, "final_reads": elsewhere}))
    assert claimed in text_of(stories_of(read_run(lost_dir))[0])
