"""A judging that something stops leaves the verdict unknown: no exception, and no verdict of an earlier judging."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from chaos.plans.plan import make_plan, write_plan
from chaos.runs import judgement
from chaos.runs.directory import RunDirectory
from checkers.history import conversion
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
    """What judging wrote."""
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


def test_whatever_stops_judging_the_verdict_is_unknown_and_the_traceback_is_kept(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*values: Any, **named: Any) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(judgement, "judge_run", stop)
    written = judged(run)
    assert written["verdict"] == "unknown"
    assert "judging stopped: RuntimeError: out of luck (see harness-traceback.txt)" in written["reasons"]
    assert "out of luck" in (run.path / "harness-traceback.txt").read_text()


def test_a_judging_that_is_interrupted_leaves_no_earlier_verdict(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*values: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(judgement, "analyse", interrupt)
    with pytest.raises(KeyboardInterrupt):
        judgement.judge(run, Console(quiet=True))
    assert not run.verdict.exists()
