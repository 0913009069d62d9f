"""A fault of a client zone hits that zone's clients in a simulated run."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.simulation import simulate
from squall.chaos.runtimes.layout import zone_names

pytestmark = pytest.mark.gate

OF_ZONE_2 = ["CLIENT2->1", "CLIENT2->2", "CLIENT2->3"]


def plan_values(zones: int, target: str, action: str = "partition", **params: Any) -> dict[str, Any]:
    fault = {"at_s": 3, "duration_s": 2, "action": action, "target": target, "params": params}
    return {"workload": {"zones": zones}, "faults": [fault]}


def test_a_simulated_run_has_its_clients_in_zones_and_says_which_was_cut_off() -> None:
    values = {**plan_values(2, "zone:2"), "runtime": "sim", "time_s": 6, "warmup_s": 1}
    values["workload"] |= {"rate": 20, "producers": 2, "readers": 2, "topics": 1}
    result = simulate(make_plan(values))
    assert result.verdict == "valid", result.reasons
    lines = [json.loads(line) for line in result.files["history.jsonl"].splitlines()]
    zones = [(line["role"], line["zone"]) for line in lines if line["e"] == "p" and line["role"] != "final"]
    # And after healing one more producer, of no zone in particular, who writes to every partition.
    assert sorted(zones) == sorted([*product(("producer", "reader"), zone_names(2)), ("producer", "CLIENT")])
    assert {line["zone"] for line in lines if line["e"] == "p" and line["role"] == "final"} == {"CLIENT"}
    told = json.loads(result.files["nemesis.jsonl"].splitlines()[-1])
    assert told["target"] == {"asked": "zone:2", "resolved": ["CLIENT2"]}
    assert told["evidence"]["links"] == OF_ZONE_2
