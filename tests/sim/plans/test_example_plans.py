"""The plans in docs/plans can be read and run, and their faults take effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall.chaos.plans.plan import make_plan, read_plan
from squall.chaos.runs.simulation import simulate

PLANS = sorted((Path(__file__).parents[3] / "docs" / "plans").glob("*.toml"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_an_example_plan_is_a_plan_and_lands_in_a_simulation(path: Path) -> None:
    plan = read_plan(path)
    assert plan.runtime == "process"
    few = {**plan.model_dump()["workload"], "rate": 30, "producers": 2, "readers": 2}
    result = simulate(make_plan({**plan.model_dump(exclude={"operations"}), "runtime": "sim", "workload": few}))
    assert result.verdict == "valid", result.reasons
