"""Simulated runs of the workload `semantics`: which application loses inputs, and which processes some twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate
from squall.workloads.pipeline.steps import ABORT, LEAVE, SEND
from squall.workloads.semantics import SemanticsLoad

MOST, LEAST, EXACTLY = "at most once", "at least once", "exactly once"
LOAD = {
    "name": "semantics", "rate": 4, "instances": 1, "partitions": 2, "poll_pause_ms": 500, "session_timeout_ms": 1500,
    "max_poll_interval_ms": 2000, "transaction_timeout_ms": 1500,
}  # fmt: skip


def judged(folder: Path, **table: Any) -> dict[str, Any]:
    """Return verdict.json of a simulated run."""
    settings = {**SemanticsLoad.BROKERS, **SemanticsLoad.suited_brokers(LOAD)}
    plan = make_plan({"runtime": "sim", "workload": LOAD, "cluster": {"nodes": 3, "settings": settings}, **table})
    result = simulate(plan)
    assert not result.violations, result.reasons
    verdict: dict[str, Any] = json.loads((save(result, folder, "run").path / "verdict.json").read_bytes())
    return verdict


def counted(verdict: dict[str, Any], *names: str) -> dict[str, list[int]]:
    return {name: [each[count] for count in names] for name, each in verdict["workload"]["applications"].items()}


def permitted(verdict: dict[str, Any]) -> set[str]:
    return {each["name"] for each in verdict["anomalies"] if each["permitted"]}


def test_under_the_same_faults_the_first_loses_the_second_doubles_and_the_third_does_neither(tmp_path: Path) -> None:
    faults = [
        {"at_s": 2, "duration_s": 2, "action": "kill", "target": "coordinator:squall-at-most-once"},
        {"at_s": 6, "duration_s": 2, "action": "pause", "target": "coordinator:squall-exactly-once"},
    ]
    verdict = judged(tmp_path, seed=6, time_s=12, faults=faults, workload={**LOAD, "churn": 60})
    assert verdict["verdict"] == "valid", verdict
    applications = verdict["workload"]["applications"]
    most, least, exactly = applications[MOST], applications[LEAST], applications[EXACTLY]
    assert most["lost"] > 0 == most["doubled"]
    assert least["doubled"] > 0 == least["lost"]
    assert (exactly["lost"], exactly["doubled"], exactly["waiting"]) == (0, 0, 0)
    assert exactly["inputs"] == exactly["outputs"] == most["inputs"] == least["inputs"] > 20
    assert permitted(verdict) == {"eos-loss", "eos-duplicate"}


@pytest.mark.gate
@pytest.mark.parametrize(
    ("do", "loses", "doubles"),
    [("crash sent", False, True), ("crash offsets", True, False), (ABORT, False, True), (LEAVE, False, False)],
)
def test_what_a_step_costs_each_application(do: str, loses: bool, doubles: bool, tmp_path: Path) -> None:
    inputs: list[list[Any]] = [[at / 2, 0, SEND, at % 2, 200] for at in range(10)]
    steps: Sequence[list[Any]] = [[3.0, 0, do, 0 if do == ABORT else 500, 0]]
    verdict = judged(tmp_path, seed=5, time_s=6, faults=[], operations=sorted([*inputs, *steps]))
    found = counted(verdict, "lost", "doubled", "waiting")
    assert verdict["verdict"] == "valid", verdict
    assert found[EXACTLY] == [0, 0, 0]
    assert (found[MOST][0] > 0, found[MOST][1:]) == (loses, [0, 0])
    assert (found[LEAST][1] > 0, found[LEAST][::2]) == (doubles, [0, 0])
