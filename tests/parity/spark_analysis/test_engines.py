"""Both engines write the same verdict of a recorded run with replica logs and traces."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from squall.chaos.mutants import find
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.plans.swarm import swarm_plan
from squall.chaos.runs import judgement
from squall.chaos.runs.directory import RunDirectory
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate
from squall.chaos.runs.spark import HERE, SparkOptions
from squall.checkers.engines import REFERENCE, SPARK
from squall.checkers.history import conversion
from squall.spark_analysis.jobs import analyse_converted
from squall.workloads.registry import SCENARIOS

pytestmark = pytest.mark.night("plans every query anew; the gate has one session")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIMULATED = [name for name, scenario in SCENARIOS.items() if scenario.SIMULATED]
PLAN = Path(__file__).parents[3] / "plans/delayed-end-txn.toml"
WRITTEN = ("verdict.json", "findings.json", "metrics.json", "series.json")
Judge = Callable[[Path, SparkOptions | None], Mapping[str, Any]]


@pytest.fixture
def judge(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Return a function that judges a run directory as `squall verify` does, in the tests' Spark session, and returns
    the files that were written.
    """

    def in_session(directory: RunDirectory, *_: object) -> None:
        analyse_converted(spark, directory.path, directory.path, conversion.convert(directory.path))

    def by(run: Path, engine: SparkOptions | None) -> Mapping[str, Any]:
        judgement.judge(RunDirectory(run), Console(quiet=True), spark=engine)
        return {name: json.loads((run / name).read_text(), parse_float=_rounded) for name in WRITTEN}

    monkeypatch.setattr(judgement, "analyse", in_session)
    return by


def _rounded(text: str) -> float:
    """Round a number: sums that were added in another order differ in the last digit."""
    return float(f"{float(text):.9g}")


def same(judge: Judge, run: Path) -> Mapping[str, Any]:
    """Assert that both engines write the same, except for the engine's name, and return the verdict."""
    by_reference, by_spark = judge(run, None), judge(run, HERE)
    for name, engine in ((REFERENCE, by_reference), (SPARK, by_spark)):
        assert [engine[file].pop("engine") for file in WRITTEN[:2]] == [name, name]
    assert by_reference == by_spark
    verdict: Mapping[str, Any] = by_spark["verdict.json"]
    return verdict


def recorded(plan: Plan, folder: Path, mutant: str | None = None) -> Path:
    """Return the directory of a simulated run without a verdict."""
    run = save(simulate(plan, mutant=mutant, stop_at_first=False), folder, "again", latest=False, tables=False).path
    for name in WRITTEN:
        (run / name).unlink()
    return run


@pytest.mark.parametrize("workload", SIMULATED)
def test_both_engines_judge_a_run_of_each_workload_alike(workload: str, judge: Judge, tmp_path: Path) -> None:
    verdict = same(judge, recorded(swarm_plan(0, workload=workload), tmp_path))
    assert verdict["metrics"]["outcomes"], "what was done"
    assert "replica-divergence" not in verdict["not_run"]


def test_both_engines_find_the_same_in_a_run_of_a_planted_bug(judge: Judge, tmp_path: Path) -> None:
    verdict = same(judge, recorded(find("9").plan(1), tmp_path, "9"))
    assert {"lost-write", "inconsistent-offset", "stale-ack"} <= {each["name"] for each in verdict["anomalies"]}


def test_both_engines_find_the_same_in_a_run_of_transactions_that_end_late(judge: Judge, tmp_path: Path) -> None:
    values = tomllib.loads(PLAN.read_text())
    workload = {**values["workload"], "generation": 1}
    verdict = same(judge, recorded(make_plan({**values, "runtime": "sim", "workload": workload}), tmp_path))
    assert {"torn-txn", "G1a"} <= {each["name"] for each in verdict["anomalies"]}
