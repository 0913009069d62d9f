"""A run of real brokers gets the same verdict from the reference engine and from Spark."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from squall.chaos import cli
from squall.checkers.engines import REFERENCE, SPARK
from squall.workloads.registry import SCENARIOS

pytestmark = pytest.mark.night("a run of processes and Spark for each workload")

PRODUCER = Path(__file__).parents[3] / "docs/examples/my_producer.py"
OF_ITS_OWN = {"command": ["--command", f"{sys.executable} {PRODUCER}"]}


def verdict_of(run: Path) -> dict[str, Any]:
    """Return verdict.json with its numbers as texts of nine digits: Spark writes 5.0 where the reference engine writes
    5.
    """

    def number(text: str) -> str:
        return f"{float(text):.9g}"

    verdict: dict[str, Any] = json.loads((run / "verdict.json").read_text(), parse_float=number, parse_int=number)
    return verdict


@pytest.mark.parametrize("workload", SCENARIOS)
def test_both_engines_judge_a_run_of_real_brokers_alike(workload: str, tmp_path: Path) -> None:
    load = ["--workload", workload, "--time", "8", "--seed", "7", "--faults", "kill", *OF_ITS_OWN.get(workload, ())]
    code = cli.run(["run", *load, "--engine", REFERENCE, "--keep-data", "--runs", str(tmp_path)])
    run = (tmp_path / "latest").resolve()
    by_reference = verdict_of(run)
    assert "--engine reference" in json.loads((run / "run.json").read_text())["command"], "which repeats it"
    assert not (run / "spark.log").exists()
    assert cli.run(["verify", str(run)]) == code
    by_spark = verdict_of(run)
    assert (by_reference.pop("engine"), by_spark.pop("engine")) == (REFERENCE, SPARK)
    assert by_reference == by_spark
