"""The output of `--json` for simulations, and for the commands that read their run directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos import cli
from tests.support.json_output import checked

ROOT = Path(__file__).resolve().parents[3]


def test_a_found_bug_is_told_by_sim_runs_and_explain(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = ROOT / "tests/sim/plans/kip_101_loss.toml"
    assert cli.run(["sim", "--plan", str(plan), "--mutant", "1", "--json"]) == 1
    out, err = capfd.readouterr()
    told = checked("sim", out)
    assert "INVALID" in err
    run = told["run"]
    assert (told["exit"], run["verdict"], told["batch"]) == (1, "invalid", None)
    assert len(told["digest"]) >= 16
    assert {each["state"] for each in run["found"]} == {"not permitted"}
    assert run["reasons"] and "--mutant 1" in run["repeat"] and Path(run["report"]).exists()

    assert cli.run(["runs", "--json"]) == 0
    (row,) = checked("runs", capfd.readouterr().out)["runs"]
    assert row == {name: run[name] for name in row}

    name = run["found"][0]["name"]
    for words in ((), (name,)):
        assert cli.run(["explain", run["path"], *words, "--json"]) == 0
        explained = checked("explain", capfd.readouterr().out)
        assert explained["verdict"] == "invalid"
        assert [each["name"] for each in explained["findings"]][0] == name
        assert bool(explained["stories"]) == bool(words)


def test_a_batch_is_told_by_its_seeds(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = ROOT / "tests/sim/plans/kip_101_loss.toml"
    words = ["sim", "--plan", str(plan), "--mutant", "1", "--seeds", "0..2", "--jobs", "1", "--json"]
    code = cli.run(words)
    told = checked("sim", capfd.readouterr().out)
    batch = told["batch"]
    assert told["exit"] == code and told["run"] is None
    assert (batch["first"], batch["last"], batch["done"], sum(batch["verdicts"].values())) == (0, 1, 2, 2)
    assert all("--mutant 1" in each["repeat"] for each in batch["failed"])
