"""The converter's tables about groups agree with those that an oracle derives from the lines of whole runs."""

from __future__ import annotations

import pytest

from squall.chaos.plans.swarm import swarm_plan
from squall.chaos.runs.simulation import simulate
from tests.property.checkers.test_derived_columns import hold_of_groups


@pytest.mark.parametrize("workload", ["groups", "pipeline", "semantics"])
@pytest.mark.parametrize("seed", range(3))
def test_of_a_seed(workload: str, seed: int) -> None:
    papers = simulate(swarm_plan(seed, workload=workload)).run_files()
    lines = papers["history.jsonl"].splitlines(keepends=True)
    assert any(b'"kind":"assigned"' in line for line in lines)
    hold_of_groups(lines, papers["nemesis.jsonl"].splitlines(keepends=True))
