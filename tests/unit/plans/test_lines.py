"""Checks that what is wrong with a plan's file is reported with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from squall.chaos import cli
from squall.chaos.plans.lines import with_line
from squall.chaos.plans.plan import PlanError, make_plan, read_plan, write_plan

WRONG = """\
seed = 3
time_s = -4  # a number below nothing
nonsense = 1

[workload]
acks = 7

[cluster.settings]
"no.such" = "1"

[[faults]]
at_s = 3
duration_s = 2
action = "kil"
target = "node:1"

[[faults]]
at_s = 3
duration_s = 2
action = "latency"
target = "node:1"
params = { latency_ms = 0 }
"""
PLACES = {
    "time_s: ": 2,
    "nonsense: ": 3,
    "workload.acks: ": 6,
    "fault 0: unknown action": 14,
    "fault 1 (latency): ": 22,
}


def test_each_mistake_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(WRONG)
    with pytest.raises(PlanError) as refused:
        read_plan(path)
    lines = str(refused.value).splitlines()
    for what, number in PLACES.items():
        assert [line for line in lines if line.startswith(f"{path}: line {number}: {what}")], (what, lines)


def test_each_mistake_of_a_written_plan_has_its_line(tmp_path: Path) -> None:
    faults = [{"at_s": 3.0, "duration_s": 2.0, "action": "kill", "target": f"node:{node}"} for node in (1, 2)]
    text = write_plan(make_plan({"faults": faults}))
    text = text.replace('"node:2"', '"node:two"')
    (number,) = [number for number, line in enumerate(text.splitlines(), 1) if "node:two" in line]
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(PlanError, match=rf"plan\.toml: line {number}: fault 1 \(kill\)"):
        read_plan(path)


def test_what_stands_nowhere_has_no_line() -> None:
    assert with_line("seed = 3\n", "workload.acks: no") == "workload.acks: no"
    assert with_line("seed = 3\n", "fault 4: no") == "fault 4: no"
    assert with_line("", "the moon is full") == "the moon is full"
    assert with_line("[workload]\nrate = 1\n", "workload.acks: no") == "line 1: workload.acks: no", "its table's"


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n"])
def test_a_plan_with_nothing_in_it_is_refused_at_once(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(text)
    for path in ("plan.toml", "/dev/null"):
        assert cli.run(["sim", "--plan", path]) == cli.USAGE
        assert f"{path}: nothing is in it" in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*-seed*"))


def test_a_long_name_of_a_flag_is_met_with_the_short_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["run", "--time-s", "5"]) == cli.USAGE
    assert re.search(r"Did you mean.*'--time'", capsys.readouterr().err)
