"""The verdict and the page of a simulated run of the workload `steady` show the measured availability."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate
from squall.reports.page import render
from squall.reports.run_files import read_run
from squall.reports.sections.of_run import section_of

pytestmark = pytest.mark.gate

# ---------------------------------------------------------------------------------------------- what it shows


def test_a_simulated_run_has_availability_in_its_verdict_and_on_its_page(tmp_path: Path) -> None:
    kill = {"at_s": 3, "duration_s": 2, "action": "kill", "target": "leader"}
    load = {"name": "steady", "request_timeout_ms": 1000}
    plan = make_plan({"seed": 1, "runtime": "sim", "time_s": 12, "workload": load, "faults": [kill]})
    result = simulate(plan)
    assert result.verdict == "valid", result.reasons
    directory = save(result, tmp_path, "again")
    said = json.loads(directory.verdict.read_text())["workload"]
    assert said["name"] == "steady"
    (hit,) = said["faults"]
    assert hit["writes"]["longest_s"] > 1, "somebody has to notice that the leader is gone"
    assert said["writes"]["without_s"] >= hit["writes"]["longest_s"]
    page = render(directory.path).read_text()
    assert "Availability" in page and "nothing acknowledged for" in page
    section, trouble = section_of(read_run(directory.path))
    assert section is not None and not trouble
    assert section.strip is not None
    assert [lane.name for lane in section.strip.lanes][:2] == ["acknowledgements", "answered polls"]
    assert [row[0] for row in section.tables[0].rows] == [f"kill {hit['hit'][0]}", "the whole load"]
