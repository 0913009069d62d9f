"""A judging that something stops leaves the verdict unknown; one that is interrupted leaves the earlier one whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from squall.chaos import cli
from squall.chaos.plans.plan import make_plan, write_plan
from squall.chaos.runs import judgement, real
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.spark import HERE, SparkOptions
from squall.checkers import analysis
from squall.checkers.history import conversion
from squall.reports import page
from tests.support.histories.builder import HistoryBuilder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run that was found valid, and in which Spark has no more to do."""
    h = HistoryBuilder()
    h.final([(0, h.sent(h.producer(), 0))])
    directory = RunDirectory(tmp_path)
    directory.history.write_bytes(b"".join(h.lines()))
    directory.nemesis.write_bytes(b"")
    directory.plan.write_text(write_plan(make_plan({"seed": 1, "runtime": "sim"})))
    directory.verdict.write_text(json.dumps({"verdict": "valid"}))
    conversion.convert(tmp_path)
    monkeypatch.setattr(judgement, "analyse", lambda *_: None)
    return directory


def judged(run: RunDirectory) -> dict[str, Any]:
    """Return what the judgement wrote."""
    written = judgement.judge(run, Console(quiet=True))
    assert json.loads(run.verdict.read_text()) == written
    return written


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"deep":' + "[" * 100_000 + "]" * 100_000 + "}", "run.json cannot be read: RecursionError"),
        ('{"ended_ns":1,"harness":5}', "run.json: harness has not the form"),
        ('{"ended_ns":1,"node_exits":[{"node":1}]}', "run.json: node_exits has not the form"),
        ('{"ended_ns":1,"node_exits":null}', "run.json: node_exits has not the form"),
        ("[]", "run.json is no object"),
    ],
    ids=["nested", "harness", "exits", "no exits", "a list"],
)
def test_a_run_json_that_is_damaged_is_unknown(run: RunDirectory, text: str, why: str) -> None:
    run.info.write_text(text)
    written = judged(run)
    assert written["verdict"] == "unknown"
    assert any(reason.startswith(why) for reason in written["reasons"]), written["reasons"]
    assert not (run.path / "harness-traceback.txt").exists()


@pytest.mark.parametrize("engine", [None, HERE], ids=["reference", "spark"])
def test_a_run_without_its_history_is_unknown_whatever_was_found_in_it_before(
    run: RunDirectory, engine: SparkOptions | None
) -> None:
    run.info.write_text(json.dumps({"run": "r", "ended_ns": 1}))
    analysis.find_in_run(run.path)
    assert (run.path / analysis.FINDINGS).exists()
    run.history.unlink()
    written = judgement.judge(run, Console(quiet=True), spark=engine)
    assert (written["verdict"], written["anomalies"], written["engine"]) == ("unknown", [], None)
    assert not (run.path / analysis.FINDINGS).exists()
    assert written["reasons"] == ["there is no history: it was removed after the run"]
    run.info.unlink()
    assert "there is no history: the run ended before anything was recorded" in judged(run)["reasons"]


def test_a_run_whose_program_was_refused_is_judged_at_once_and_as_before(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "the program `./p` (producer) ended before it was ready; it last said:\nno broker"
    run.info.write_text(json.dumps({"run": "r", "trouble": "other words", "refused": why}))
    monkeypatch.setattr(judgement, "analyse", interrupt)
    run.report.write_text("an earlier page")
    written = judged(run)
    assert (written["verdict"], written["reasons"], written["anomalies"]) == ("unknown", [why], [])
    assert not run.report.exists()
    run.info.write_text(json.dumps({"run": "r", "refused": 5}))
    with pytest.raises(KeyboardInterrupt):
        judged(run)


def test_whatever_stops_judging_the_verdict_is_unknown_and_the_traceback_is_kept(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*values: Any, **named: Any) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(judgement, "judge_run", stop)
    written = judged(run)
    assert written["verdict"] == "unknown"
    assert written["reasons"] == ["judging stopped: RuntimeError: out of luck (see harness-traceback.txt)"]
    assert "out of luck" in (run.path / "harness-traceback.txt").read_text()


SHOWN = ("verdict.json", "report.html", "junit.xml")


def interrupt(*values: Any, **named: Any) -> None:
    raise KeyboardInterrupt


def test_a_judging_that_is_interrupted_leaves_the_earlier_verdict_whole_and_says_so(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["verify", str(run.path)]) == 2
    before = {name: (run.path / name).read_bytes() for name in SHOWN}
    capsys.readouterr()
    monkeypatch.setattr(judgement, "analyse", interrupt)
    assert cli.run(["verify", str(run.path)]) == 130
    assert {name: (run.path / name).read_bytes() for name in SHOWN} == before
    assert capsys.readouterr().err.splitlines()[-1].endswith("not judged again; its earlier verdict is unknown")
    run.verdict.unlink()
    assert cli.run(["verify", str(run.path)]) == 130
    assert "interrupted: there is no verdict yet. To judge the run: " in capsys.readouterr().err


def test_an_interruption_before_the_page_is_drawn_leaves_no_page_of_the_earlier_verdict(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in SHOWN[1:]:
        (run.path / name).write_text("VALID")
    monkeypatch.setattr(page, "render", interrupt)
    assert cli.run(["verify", str(run.path)]) == 130
    assert not run.report.exists()
    assert "VALID" not in (run.path / "junit.xml").read_text()
    assert json.loads(run.verdict.read_text())["verdict"] == "unknown"
    assert "interrupted: the verdict is unknown. To make the page: " in capsys.readouterr().err


def test_a_verdict_that_could_not_be_reached_is_shown_by_no_page_of_the_earlier_one(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.report.write_text("VALID")

    def stop(*values: Any, **named: Any) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(judgement, "judge_run", stop)
    assert judged(run)["verdict"] == "unknown"
    assert not run.report.exists()


def test_a_run_that_is_interrupted_before_its_cluster_starts_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(real, "class_archive", lambda *_: None)
    monkeypatch.setattr(real, "java", lambda *_: None)
    monkeypatch.setattr(real, "repeat_command", interrupt)
    assert cli.run(["run", "--faults", "none", "--runs", str(tmp_path / "runs")]) == 130
    (made,) = [each for each in (tmp_path / "runs").iterdir() if not each.is_symlink()]
    said = capsys.readouterr().err
    assert "interrupted; no cluster is left. What was recorded: " in said.replace("\n", " ")
    assert made.name in said
    assert not list(made.glob(".reserve*"))
