"""`squall explain`: a finding in words, with its causes and its story; a clear word where there is none."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from squall.chaos import cli
from squall.chaos.commands.explain import command
from tests.unit.reports.conftest import LOST


def told(*words: str) -> str:
    done = CliRunner().invoke(command, words, standalone_mode=False)
    assert done.exception is None, done.output
    return done.output


def test_a_finding_has_its_meaning_its_cause_and_its_story(lost_dir: Path) -> None:
    text = told(str(lost_dir), "lost-write")
    assert text.startswith("lost-write (reads): 2 found, not permitted\n")
    assert "  What it is: acknowledged, in no final read." in text
    assert "  Cause 1, of" in text
    assert "lost-write in appends-0-0\n=====" in text
    assert f"{lost_dir}/report.html" in text
    *lines, last = text.splitlines()
    assert last.startswith("repeat: "), "the command that repeats the run, however long it is"
    assert max(map(len, lines)) <= 130


def test_without_a_name_it_lists_what_there_is(lost_dir: Path) -> None:
    text = told(str(lost_dir))
    assert text.startswith("INVALID  ")
    assert "\n  lost-write (reads): 2, not permitted" in text
    (lost_dir / "report.html").touch()
    *_, story, page = told(str(lost_dir)).splitlines()
    assert page == f"page: {lost_dir}/report.html"
    *words, run, name = shlex.split(story.removeprefix("the story of one: "))
    assert (words, run) == (["./squall", "explain"], str(lost_dir))
    assert told(run, name).startswith(f"{name}: 2 found, not permitted")


@pytest.mark.parametrize(
    ("name", "said"),
    [("lost-wirte", "did you mean 'lost-write'?"), ("duplicate", "duplicate was looked for and not found; found")],
)
def test_what_is_not_there_is_told_with_what_is(
    lost_dir: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["explain", str(lost_dir), name]) == 3
    assert said in capsys.readouterr().err


def test_a_run_without_traces_says_that_there_is_no_longer_story(lost_dir: Path) -> None:
    for trace in lost_dir.glob("nodes/*/trace.jsonl"):
        trace.unlink()
    text = told(str(lost_dir), "lost-write")
    assert "lost-write (reads): 2 found" in text
    assert "no brokers' traces" in text or "lost-write in appends-0-0" in text


def test_a_permitted_finding_and_a_second_one_of_a_partition_have_their_stories(lost_dir: Path) -> None:
    verdict = json.loads((lost_dir / "verdict.json").read_text())
    (lost,) = verdict["anomalies"]
    permitted = {**lost, "permitted": True, "why": "permitted: acks=1"}
    witness = {**lost["witnesses"][0], "val": LOST + 1, "op": 10}
    second = {**lost, "name": "unseen", "evidence": "", "witnesses": [witness]}
    (lost_dir / "verdict.json").write_text(json.dumps({**verdict, "anomalies": [permitted, second]}))
    first = told(str(lost_dir), "lost-write")
    assert "lost-write in appends-0-0, permitted\n=====" in first
    assert "A (record 7 of process 3) was handed over" in first
    other = told(str(lost_dir), "unseen")
    assert "unseen in appends-0-0\n=====" in other and "(record 8 of process 3) was handed over" in other


def test_of_two_findings_of_one_name_each_has_its_own_story(lost_dir: Path) -> None:
    verdict = json.loads((lost_dir / "verdict.json").read_text())
    (lost,) = verdict["anomalies"]
    witness = {**lost["witnesses"][0], "val": LOST + 1, "op": 10}
    other = {**lost, "evidence": "final", "witnesses": [witness]}
    (lost_dir / "verdict.json").write_text(json.dumps({**verdict, "anomalies": [lost, other]}))
    assert "(record 8 of process 3) was handed over" in told(str(lost_dir), "lost-write (final)")
    first = told(str(lost_dir), "lost-write (reads)")
    assert "A (record 7 of process 3) was handed over" in first and "A (record 8" not in first


def test_the_list_of_an_unknown_run_has_all_of_its_reasons(lost_dir: Path) -> None:
    unknown = {"verdict": "unknown", "anomalies": [], "reasons": ["a fault never began", "broker 2 ended by itself"]}
    verdict = json.loads((lost_dir / "verdict.json").read_text())
    (lost_dir / "verdict.json").write_text(json.dumps({**verdict, **unknown}))
    text = told(str(lost_dir))
    assert "for 2 reasons:\n  - a fault never began\n  - broker 2 ended by itself\n" in text
