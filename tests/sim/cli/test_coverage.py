"""`squall sim --seeds A..B --coverage` lists what a batch of seeds did not reach. Measuring changes no run."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos import cli
from squall.chaos.commands import sim_batch
from squall.chaos.runs.batch import SeedBatch, run_batch
from tests.support.json_output import checked

pytestmark = pytest.mark.night("measures coverage, and reads the source of the whole broker: above 5 CPU s")


def test_measuring_changes_no_run_and_each_worker_reports_arcs(tmp_path: Path) -> None:
    plain = {each.seed: each for each in run_batch(SeedBatch(None, None, tmp_path), range(3), 1)}
    measured = {each.seed: each for each in run_batch(SeedBatch(None, None, tmp_path, coverage=True), range(3), 2)}
    assert {seed: each.digest for seed, each in measured.items()} == {seed: each.digest for seed, each in plain.items()}
    assert not any(each.arcs for each in plain.values())
    assert measured[0].arcs["broker/log/log.py"]


def test_a_batch_lists_what_it_did_not_reach_with_reasons_on_its_page_and_none_of_these_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sim_batch, "ALL_PATHS_FROM", 1)
    words = ["sim", "--seeds", "0..4", "--jobs", "1", "--coverage", "--out", str(tmp_path), "--json"]
    assert cli.run(words) == 2  # so few seeds leave branches that have no reason
    out, err = capfd.readouterr()
    coverage = checked("sim", out)["batch"]["coverage"]
    assert 0 < coverage["reached"] < coverage["branches"]
    assert 0 < coverage["called"] < coverage["functions"]
    assert coverage["refuted"] == []
    kinds = {each["kind"] for each in coverage["unreached"]}
    assert kinds == {"unexplained", "undrawn", "rare", "impossible"}
    assert all(bool(each["reason"]) == (each["kind"] != "unexplained") for each in coverage["unreached"])
    assert "should take every branch that has no reason" in err
    page = (tmp_path / "coverage.html").read_text()
    unexplained = next(each for each in coverage["unreached"] if each["kind"] == "unexplained")
    assert f"{unexplained['file']}:{unexplained['line']} {unexplained['function']}" in page
