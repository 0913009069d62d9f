"""Checks what is read from a night's files, whatever state they are in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from squall.checkers.nightly.night import UnreadableNight, read_night
from squall.checkers.nightly.runs import configuration, facts_of_night
from tests.support.histories.nemesis_lines import fault_line
from tests.support.nightly.files import NightFiles


def test_of_an_item_the_last_attempt_counts(tmp_path: Path) -> None:
    files = NightFiles(tmp_path / "n1")
    files.add("one", "unknown", why="a fault did not land")
    files.add("one")
    files.plan_item("two", acks="all")
    night = read_night(files.write(end={"left_out": [{"item": "two", "why": "no time"}]}))
    assert [(each.attempt, each.attempt == night.last["one"], each.why) for each in night.attempts] == [
        (1, False, "a fault did not land"),
        (2, True, ""),
    ]
    assert night.not_run == ("two",)
    assert night.left_out == ("two: no time",)


def test_a_night_without_an_end_goes_on_or_was_killed(tmp_path: Path) -> None:
    night = read_night(NightFiles(tmp_path / "n1").write())
    assert (night.ended, night.exit, night.attempts) == ("", None, ())


def test_a_torn_last_line_is_left_out_and_told(tmp_path: Path) -> None:
    files = NightFiles(tmp_path / "n1")
    files.add("one")
    path = files.write(end={})
    with (path / "results.jsonl").open("a") as file:
        file.write('{"item": "two", "att')
    night = read_night(path)
    assert [each.item for each in night.attempts] == ["one"]
    assert night.problems == ("results.jsonl: line 2 cannot be read, and is left out.",)


def test_a_night_that_went_on_at_another_commit_says_so(tmp_path: Path) -> None:
    files = NightFiles(tmp_path / "n1", commits_since=["c0ffee00c0ffee00"])
    files.add("one")
    assert read_night(files.write()).problems == (
        "The night went on at another commit (c0ffee00c0ff): its runs are not all of the one it began at.",
    )


def test_a_folder_without_a_night_is_refused_with_a_sentence(tmp_path: Path) -> None:
    why = r"no night is there: it has no night.json, which `squall nightly` writes first"
    with pytest.raises(UnreadableNight, match=why):
        read_night(tmp_path)


@pytest.mark.parametrize("text", ['{"schema": 0}', "[]", '{"items": []}'])
def test_a_night_of_another_schema_is_refused_with_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "night.json").write_text(text)
    with pytest.raises(UnreadableNight, match="and this version of Squall reads 1"):
        read_night(tmp_path)


def test_a_night_that_is_no_json_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "night.json").write_text('{"schema": 1, "ni')
    with pytest.raises(UnreadableNight, match="cannot be read"):
        read_night(tmp_path)


def test_a_broken_run_has_facts_as_far_as_its_files_say(tmp_path: Path) -> None:
    files = NightFiles(tmp_path / "n1")
    files.add("gone", "no verdict", run="runs/nowhere")
    empty = files.add("empty", "no verdict")
    for each in empty.iterdir():
        each.unlink()
    gone, bare = facts_of_night(read_night(files.write()))
    assert (gone.path, gone.trouble) == (None, "its run directory is gone")
    assert gone.classes == "not known", "nobody knows which faults it had"
    assert (bare.path, bare.promise, bare.classes) == (empty, "", "none")
    assert bare.configuration == "acks=all, min ISR 2 of 3", "the matrix says it"


@pytest.mark.parametrize(
    ("noted", "judged", "counts"),
    [
        ("valid", "invalid", "invalid"),
        ("invalid", "valid", "invalid"),
        ("valid", "unknown", "unknown"),
        ("unknown", "valid", "unknown"),
        ("no verdict", "valid", "no verdict"),
    ],
)
def test_of_two_verdicts_of_a_run_the_graver_one_counts_and_both_are_told(
    tmp_path: Path, noted: str, judged: str, counts: str
) -> None:
    files = NightFiles(tmp_path / "n1")
    files.add("one", noted, judged={"verdict": judged})
    (facts,) = facts_of_night(read_night(files.write()))
    assert facts.verdict == counts
    told = f"the night noted {noted}, and verdict.json says {judged}: judged again, or changed"
    assert facts.trouble == ("" if noted == "no verdict" else told)


def test_an_unjudged_run_is_promised_what_its_plan_says(tmp_path: Path) -> None:
    files = NightFiles(tmp_path / "n1")
    files.add("one", "unknown", acks=1, nemesis=fault_line(0, "kill") + fault_line(1, "partition", 45, 80))
    (facts,) = facts_of_night(read_night(files.write()))
    assert facts.classes == "P N"
    assert facts.promise.startswith("acks=1")
    assert "lost-write" in facts.permitted


def test_a_judged_run_is_promised_what_it_was_judged_by(tmp_path: Path) -> None:
    judged = {"guarantee": {"row": "--expect safe permits no anomaly", "permitted": {}}}
    files = NightFiles(tmp_path / "n1")
    files.add("one", "invalid", acks=1, judged=judged)
    (facts,) = facts_of_night(read_night(files.write()))
    assert (facts.promise, facts.permitted) == ("--expect safe permits no anomaly", ())


@pytest.mark.parametrize(
    ("axes", "name"),
    [
        ({"acks": "all", "min-isr": "2", "replication-factor": "3", "idempotence": "on"}, "acks=all, min ISR 2 of 3"),
        ({"acks": "1", "idempotence": "off", "codec": "none", "client": "squall"}, "acks=1"),
        ({"acks": "all", "idempotence": "off"}, "acks=all, idempotence=off"),
        ({"acks": "all", "mutant": "18", "codec": "zstd"}, "acks=all, mutant=18, codec=zstd"),
        ({"group-protocol": "mixed", "static-members": "off", "workload": "groups"}, "acks=all, group-protocol=mixed"),
        ({"workload": "transactions", "generation": "1"}, "acks=all, generation=1"),
        ({"target": "kafka", "runtime": "docker", "workload": "steady", "acks": "0"}, "acks=0"),
        ({}, "not known"),
    ],
)
def test_a_configuration_is_named_by_what_durability_depends_on(axes: dict[str, str], name: str) -> None:
    assert configuration(axes) == name


def test_what_is_in_a_night_decides_whether_it_is_collected_again(tmp_path: Path) -> None:
    from squall.checkers.nightly.store import digest_of

    files = NightFiles(tmp_path / "n1")
    run = files.add("one", judged={})
    path = files.write(end={})
    first = digest_of(read_night(path))
    assert digest_of(read_night(path)) == first
    (run / "verdict.json").write_text(json.dumps({"schema": 1, "verdict": "invalid"}))
    assert digest_of(read_night(path)) != first
