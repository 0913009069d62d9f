"""The exit code of a simulation follows from its verdict, also for verify, repeated runs and replays."""

from __future__ import annotations

import html
import json
import shlex
from pathlib import Path

import pytest

from squall.chaos import cli
from squall.chaos.plans.plan import make_plan, write_plan
from squall.chaos.typed import shortened
from squall.reports.run_files import read_run

LOAD = {"topics": 1, "partitions": 2, "producers": 2, "readers": 1, "rate": 20}
NEVER = {
    "at_s": 1,
    "duration_s": 1,
    "action": "crash_at",
    "target": "node:1",
    "params": {"op": "send", "nth": 1_000_000},
}
SHRUNK = Path(__file__).resolve().parents[2] / "sim/plans/kip_101_loss.toml"
LOSES = ["--plan", str(SHRUNK), "--mutant", "1"]
VERDICTS = {"valid": 0, "invalid": 1, "unknown": 2}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, Path]]:
    """Return, for each verdict, the exit code of a simulation and its run directory."""
    root = tmp_path_factory.mktemp("simulated")
    plan = root / "never.toml"
    plan.write_text(
        write_plan(make_plan({"seed": 5, "runtime": "sim", "time_s": 4, "workload": LOAD, "faults": [NEVER]}))
    )
    asked = {
        "valid": ["--seed", "3", "--faults", "none", "--time", "4"],
        "invalid": LOSES,
        "unknown": ["--plan", str(plan)],
    }
    found = {}
    for verdict, flags in asked.items():
        runs = root / verdict
        code = cli.run(["sim", *flags, "--runs", str(runs)])
        found[verdict] = (code, (runs / "latest").resolve())
    return found


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_simulation_ends_with_the_code_of_its_verdict(verdict: str, simulated: dict[str, tuple[int, Path]]) -> None:
    code, path = simulated[verdict]
    assert code == VERDICTS[verdict]
    assert json.loads((path / "verdict.json").read_text())["verdict"] == verdict


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_report_changes_no_verdict(verdict: str, simulated: dict[str, tuple[int, Path]]) -> None:
    assert cli.run(["report", str(simulated[verdict][1])]) == 0


@pytest.mark.parametrize("verdict", VERDICTS)
def test_a_run_that_is_judged_again_ends_with_the_code_of_its_verdict(
    verdict: str, simulated: dict[str, tuple[int, Path]]
) -> None:
    assert cli.run(["verify", str(simulated[verdict][1])]) == VERDICTS[verdict]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_every_command_that_a_run_prints_is_the_same_one_and_is_obeyed(
    verdict: str,
    simulated: dict[str, tuple[int, Path]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    code, path = simulated[verdict]
    first = json.loads((path / "run.json").read_text())
    assert cli.run(["report", str(path)]) == 0
    printed = capsys.readouterr().out
    command = first["command"]
    assert (shortened(command) in printed) == (verdict != "valid")
    assert html.escape(read_run(path).command_in_checkout()) in (path / "report.html").read_text()
    monkeypatch.chdir(tmp_path)
    assert cli.run(shlex.split(command)[1:]) == code
    again = json.loads((tmp_path / "runs/latest/run.json").read_text())
    assert again["simulated"]["digest"] == first["simulated"]["digest"]
    assert cli.run(["replay", str(path)]) == 0, "0: the same again"
