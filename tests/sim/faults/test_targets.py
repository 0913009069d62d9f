"""Targets by name, such as leader or controller, in a simulated run: the run's files say which nodes the faults hit."""

from __future__ import annotations

import json

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.simulation import simulate

SMALL = {"topics": 1, "partitions": 3, "producers": 2, "readers": 1, "rate": 40}
FAULTS = [
    {"at_s": 2, "duration_s": 2, "action": "partition", "target": "link:1->2", "params": {"manner": "drop"}},
    {"at_s": 5, "duration_s": 2, "action": "latency", "target": "link:zone:1->leader:appends-0-0"},
    {"at_s": 8, "duration_s": 3, "action": "pause", "target": "leader not controller"},
    {"at_s": 12, "duration_s": 2, "action": "kill", "target": "followers:appends-0-0"},
]


def test_a_simulated_run_hits_these_targets_and_says_whom() -> None:
    result = simulate(make_plan({"runtime": "sim", "seed": 4, "time_s": 20, "workload": SMALL, "faults": FAULTS}))
    assert result.verdict == "valid", result.reasons
    last = {line["id"]: line for line in map(json.loads, result.run_files()["nemesis.jsonl"].splitlines())}
    assert all(line["evidence"] for line in last.values())
    assert last[0]["target"]["resolved"] == ["1->2"]
    assert last[0]["evidence"]["links"] == ["1->2"]
    assert last[1]["evidence"]["links"] == last[1]["target"]["resolved"]
    assert last[1]["target"]["resolved"][0].startswith("CLIENT->")
    assert len(last[2]["target"]["resolved"]) == 1
    assert len(last[3]["target"]["resolved"]) == 2
