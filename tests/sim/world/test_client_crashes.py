"""A fault that crashes a client waits if the client has no process at that moment."""

from __future__ import annotations

import json
from typing import Any

import pytest

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.simulation import simulate

LOAD = {"topics": 1, "partitions": 2, "producers": 1, "readers": 1, "rate": 20}


def crash(at_s: float, duration_s: float) -> dict[str, Any]:
    return {
        "at_s": at_s,
        "duration_s": duration_s,
        "action": "client",
        "target": "producer:0",
        "params": {"how": "crash"},
    }


@pytest.mark.parametrize(("first_s", "landed"), [(2.0, True), (9.0, False)])
def test_a_crash_of_a_client_that_is_gone_hits_its_successor(first_s: float, landed: bool) -> None:
    faults = [crash(1, first_s), crash(1.5, 1)]
    result = simulate(make_plan({"runtime": "sim", "seed": 1, "time_s": 12, "workload": LOAD, "faults": faults}))
    last = {line["id"]: line for line in map(json.loads, result.run_files()["nemesis.jsonl"].splitlines())}
    first, second = last[0], last[1]
    assert first["evidence"]
    assert bool(second["evidence"]) == landed, second
    if landed:
        assert second["evidence"]["process"] == first["evidence"]["followed_by"]
        assert second["began"] >= first["ended"]
    else:
        assert second["error"] == "producer 0 has no process just now"
