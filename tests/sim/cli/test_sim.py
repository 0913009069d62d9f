"""`squall sim` with one seed: what it prints, and that the printed command repeats it."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
from pathlib import Path

import pytest

from squall.chaos import cli
from squall.chaos.plans.plan import read_plan
from squall.reports.fault_words import fault_rows
from squall.reports.run_files import read_run

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("named", ["1", "truncate-to-high-watermark"])
def test_the_mutant_that_is_planted_is_named_first_and_wherever_its_run_is_shown(
    named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ROOT / "tests/sim/plans/kip_101_loss.toml"
    assert cli.run(["sim", "--plan", str(plan), "--mutant", named, "--runs", str(tmp_path)]) == 1
    said, told = capsys.readouterr()
    name = "1 (truncate-to-high-watermark)"
    title = "truncates a new follower's log to its high watermark"
    assert told.splitlines()[1] == f"planted: mutant {name}, a broker that {title}"
    assert re.search(rf"^INVALID  sim-seed\d+, with mutant {re.escape(name)} planted$", said, re.MULTILINE), said
    assert re.search(rf"^repeat: .* --mutant {named}$", said, re.MULTILINE), said
    page = (tmp_path / "latest/report.html").read_text()
    assert f"with mutant {name} planted</p>" in html.unescape(page)


@pytest.mark.parametrize(
    "flags",
    [
        ["--seed", "3"],
        ["--seed", "3", "--acks", "1", "--min-isr", "1", "--faults", "kill,partition", "--expect", "safe"],
        ["--seed", "5", "--mutant", "18", "--time", "8"],
        ["--seed", "5", "--mutant", "18", "--time", "8", "--all-violations"],
        ["--swarm", "--seed", "11"],
    ],
)
def test_the_printed_command_repeats_a_single_simulation_exactly(
    flags: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code = cli.run(["sim", *flags])
    made = (tmp_path / "runs/latest").resolve()
    first = json.loads((made / "run.json").read_text())
    words = shlex.split(first["command"])
    assert Path(words[0]) == ROOT / "squall"
    # It works in any working directory.
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert cli.run(words[1:]) == code
    again = json.loads((tmp_path / "elsewhere/runs/latest/run.json").read_text())
    assert again["simulated"]["digest"] == first["simulated"]["digest"]
    page = made / "report.html"
    assert page.exists() == (code != 0)
    if code == 0:
        assert cli.run(["report", str(made)]) == 0
    in_checkout = first["command"].replace(str(ROOT / "squall"), "./squall")
    in_checkout = in_checkout.replace(str(made), os.path.relpath(made, ROOT))
    assert html.escape(in_checkout) in page.read_text()
    assert (in_checkout in (made / "junit.xml").read_text()) == (code != 0)


def test_a_valid_simulation_says_what_draws_its_page_and_page_draws_it_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["sim", "--seed", "3", "--time", "5"]) == 0
    made = (tmp_path / "runs/latest").resolve()
    assert not (made / "report.html").exists()
    said = re.search(r"^No page was made. To make one: (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert said is not None
    _, *words = shlex.split(said[1])
    assert cli.run(words) == 0
    drawn = (made / "report.html").read_text()
    assert "VALID" in drawn.upper()
    assert cli.run(["sim", "--seed", "3", "--time", "5", "--page"]) == 0
    at_once = (tmp_path / "runs/latest/report.html").read_text()
    assert "No page was made" not in capsys.readouterr().out
    # All that the page has of the history is on both.
    assert at_once.count("<svg") == drawn.count("<svg")
    assert (made / "history/records.parquet").exists()


@pytest.mark.gate
def test_one_moment_is_one_number_in_banner_verdict_story_and_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = ROOT / "tests/sim/plans/kip_497_a_leader_commits_alone.toml"
    assert cli.run(["sim", "--plan", str(plan), "--mutant", "9"]) == 1
    run = (tmp_path / "runs/latest").resolve()
    reasons = json.loads((run / "verdict.json").read_text())["reasons"]
    moment, name = re.match(r"(\S+) s (\S+)", reasons[0]).groups()  # type: ignore[union-attr]
    assert f"{moment} s {name}" in " ".join(capsys.readouterr().err.split())
    page = (run / "report.html").read_text()
    told = re.search(rf'class="t"[^>]*>([-0-9.]+) s</a><span[^>]*>Here {name} is broken', page)
    assert told is not None
    assert float(told[1]) == pytest.approx(float(moment), abs=0.01)
    planned = {fault.id: fault.at_s for fault in read_plan(run / "plan.toml").timeline() if not fault.when}
    rows = {row.id: row.began for row in fault_rows(read_run(run)) if row.began is not None}
    assert rows
    assert all(0 <= began - planned[number] < 1 for number, began in rows.items() if number in planned)
