"""A Spark cluster gives a history the same verdict as Spark on this machine alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from squall.chaos.toolchain.java import java
from squall.checkers.anomalies import stuck
from squall.checkers.anomalies.registry import find_all
from squall.checkers.findings import findings_of, to_json
from squall.checkers.history.conversion import read_lines
from tests.parity.spark_analysis.standalone import Standalone
from tests.support.histories.anomaly_cases import PLANTS
from tests.support.histories.builder import generate, merged

pytestmark = pytest.mark.night("a cluster of Spark takes minutes")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    (tmp_path / "cluster").mkdir()
    standalone = Standalone(tmp_path / "cluster", java(print).home)
    try:
        standalone.start()
        yield standalone
    finally:
        standalone.stop()


def verified(run_dir: Path, *flags: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code and verdict of `squall verify`."""
    command = [sys.executable, "-P", "-m", "squall.chaos", "verify", str(run_dir), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 1, 2), done.stderr
    return done.returncode, json.loads((run_dir / "verdict.json").read_text())


def test_a_clusters_verdict_is_that_of_this_machine(cluster: Standalone, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "plan.toml").write_text("seed = 1\nfaults = []\n")
    (run_dir / "run.json").write_text(json.dumps({"schema": 1, "run": "r", "ended_ns": 1}))
    histories = [generate(seed) for seed in range(len(PLANTS))]
    for plant, planted in zip(PLANTS.values(), histories, strict=True):
        plant(planted)
    (run_dir / "history.jsonl").write_bytes(b"".join(merged(histories)))
    limits = ("--executor-memory", "600m", "--executor-cores", "1", "--cores", "2")
    there, by_cluster = verified(run_dir, "--expect", "safe", "--master", cluster.master, *limits)
    found = json.loads((run_dir / "findings.json").read_text())["findings"]
    executors = list(cluster.work.glob("app-*/*/stderr"))
    assert len(executors) == 2, "two cores, one for each executor"
    assert all("-Xmx600M" in each.read_text() for each in executors)
    here, by_this_machine = verified(run_dir, "--expect", "safe")
    assert (there, by_cluster) == (here, by_this_machine)
    assert there == 1
    history, _ = read_lines(run_dir)
    of_final_readers = {anomaly.name for anomaly in stuck.CHECK.anomalies}
    assert [each for each in found if each["anomaly"] not in of_final_readers] == to_json(
        findings_of(find_all(history))
    )
