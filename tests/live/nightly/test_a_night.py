"""`squall nightly` end to end, with simulations that take seconds: also a killed session, and the exit codes."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.nightly.played import LIMIT_S, SMALL, nightly, results, until_one_has_ended
from tests.support.squall import ROOT, start


def runs_of(folder: Path) -> list[str]:
    """Return the command lines of OS processes that work below a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{folder}/runs" in line:
            found.append(line)
    return found


@pytest.mark.night("a night of runs: minutes")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_night_that_was_ended_goes_on_where_it_stopped(number: signal.Signals, tmp_path: Path) -> None:
    night = tmp_path / "night"
    process = start(
        "nightly", *SMALL, "--no-report", "--vary", "acks=all,1", "--seeds", "2", "--seed", "1", "--out", night
    )
    until_one_has_ended(night, process)
    process.send_signal(number)
    out, _ = process.communicate(timeout=LIMIT_S)
    deadline = time.monotonic() + 20
    while left := runs_of(night):
        assert time.monotonic() < deadline, left
    before = results(night)
    assert 0 < len(before) < 4
    if number == signal.SIGKILL:
        assert not (night / "end.json").exists()
    else:
        assert (process.returncode, json.loads((night / "end.json").read_text())["interrupted"]) == (130, True)
        assert f"goes on with: ./squall nightly --resume {night}" in out.replace(f"{ROOT}/", "./")

    code, out, errors = nightly("--resume", night, "--jobs", "1", "--no-report")

    assert code == 0, errors
    after = results(night)
    assert after[: len(before)] == before, "what had ended is not played again"
    planned = json.loads((night / "night.json").read_text())["items"]
    assert sorted(each["item"] for each in after) == sorted(each["item"] for each in planned)
    assert sorted(path.name for path in (night / "runs").iterdir() if not path.is_symlink()) == sorted(
        Path(each["run"]).name for each in after
    ), "half a run is no run"
    assert "in an earlier session " in errors
    assert "4 of 4 runs played: 4 valid" in out
    told = json.loads((night / "end.json").read_text())
    assert (told["exit"], told["interrupted"], told["left_out"]) == (0, False, [])
    cases = ElementTree.parse(night / "junit.xml").findall(".//testcase")
    of_runs = [each for each in cases if each.get("file")]
    assert len(of_runs) == 4, "JUnit shows the whole night, and not its last session"
    assert len(list((night / "allure-results").glob("*-result.json"))) == 4


@pytest.mark.night("a night of runs: minutes")
def test_a_planted_bug_is_a_finding_and_exit_code_1(tmp_path: Path) -> None:
    night, summary = tmp_path / "night", tmp_path / "summary.md"
    words = ("--no-report", "--vary", "mutant=none,22", "--seed", "1", "--summary", summary)
    code, out, errors = nightly(*SMALL[:2], "--time", "10", "--faults", "kill,partition", *words, "--out", night)
    assert code == 1, errors
    assert {each["verdict"] for each in results(night)} == {"valid", "invalid"}
    assert "FOUND  squall/sim appends mutant=22, faults kill,partition, seed 1" in out
    assert "| squall/sim appends mutant=22 | 1 | 0 | 1 | 0 | 0 |" in summary.read_text()
    failed = ElementTree.parse(night / "junit.xml").findall(".//testcase[failure]")
    of_runs = [each for each in failed if each.get("file")]
    assert [each.get("classname") for each in of_runs] == ["squall.sim appends mutant=22"]
    properties = {each.get("name"): each.get("value") for each in of_runs[0].iter("property")}
    assert properties["seed"] == "1"
    assert {"faults", "mutant", "squall", "python", "digest", "repeat"} <= set(properties)
    checks = {each.get("name") for each in failed if each.get("classname", "").endswith(".kill,partition-seed1")}
    assert "invariant served-is-committed" in checks
    shown_by_allure(night)
    assert json.loads((night / "end.json").read_text())["exit"] == 1


def shown_by_allure(night: Path) -> None:
    """Assert that Allure's result of the planted bug has phases as steps, faults with evidence, the story and the page.
    """
    found = [json.loads(path.read_text()) for path in (night / "allure-results").glob("*-result.json")]
    (failed,) = (each for each in found if each["status"] == "failed")
    assert failed["labels"].count({"name": "severity", "value": "critical"}) == 1
    assert {"name": "mutant", "value": "22"} in failed["parameters"]
    steps = {step["name"]: step for step in failed["steps"]}
    load = steps["load with faults"]
    assert load["stop"] > load["start"]
    assert load["steps"][0]["name"].startswith("kill → broker")
    (broken,) = (step for name, step in steps.items() if name.startswith("invariant served-is-committed: "))
    assert broken["name"].endswith(" found, not permitted")
    assert broken["status"] == "failed"
    attached = {each["name"] for each in failed["attachments"]}
    assert {"report.html", "timeline", "how to repeat it"} <= attached
    assert any(name.startswith("story of") for name in attached)
    assert failed["links"][0]["url"].startswith("../runs/")


@pytest.mark.gate
def test_a_night_that_proves_too_little_has_exit_code_2(tmp_path: Path) -> None:
    night = tmp_path / "night"
    words = ("--vary", "runtime=sim", "--time", "5", "--seeds", "1", "--budget", "1s", "--no-report", "--out", night)
    code, out, errors = nightly(*words)
    assert code == 2, errors
    assert "Nothing was played: this night proves nothing. 0 of 1 run played; 1 left out." in out
    assert out.splitlines()[-3:-1] == [
        "NOT PLAYED: 1 of 1 planned run (100%).",
        "WITHOUT ANY RUN: 1 of 1 configuration: squall/sim appends.",
    ]
    assert "no time: such a run takes about" in (night / "summary.md").read_text()


@pytest.mark.night("a night of runs: minutes")
def test_a_selection_is_pytests(tmp_path: Path) -> None:
    night = tmp_path / "night"
    words = (*SMALL, "--no-report", "--vary", "acks=all,1", "--seed", "1", "--out", night)
    code, out, errors = nightly(*words, "-k", "acks and not nothing")
    assert code == 0, errors
    assert "1 of 1 run played" in out
    code, out, errors = nightly("--resume", night, "-k", "acks and (")
    assert code == 3
    assert "acks and (" in errors
