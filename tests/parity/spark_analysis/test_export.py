"""An exported run, unpacked in another folder, gets the same verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from squall.chaos import cli
from tests.parity.spark_analysis.test_cluster import verified

pytestmark = pytest.mark.night("starts Spark or plans every query anew; the gate has one session")


def judged(run_dir: Path) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code and the findings of `squall verify`."""
    code, verdict = verified(run_dir, "--expect", "safe")
    return code, verdict["anomalies"]


def test_an_exported_run_is_judged_elsewhere_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["sim", "--seed", "1", "--acks", "1", "--no-idempotence", "--runs", "runs"]) in (0, 1)
    (run_dir,) = (each for each in (tmp_path / "runs").iterdir() if each.is_dir() and not each.is_symlink())
    before = judged(run_dir)
    assert before[0] == 1, "it lost records"
    assert cli.run(["export", str(run_dir), "--out", "sent.zip"]) == 0
    elsewhere = tmp_path / "elsewhere"
    with ZipFile("sent.zip") as packed:
        packed.extractall(elsewhere)
    run_dir.rename(tmp_path / "gone")
    assert judged(elsewhere / run_dir.name) == before
    assert json.loads((elsewhere / run_dir.name / "run.json").read_text())["command"].startswith("./squall sim")
