"""A network cut that affects only replication or only controller traffic in a simulated run, and the evidence of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from squall.chaos.faults.acts.traffic import can_probe_traffic, frames_of
from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.simulation import simulate
from squall.chaos.runtimes.capabilities import counts_calls, fakes_time
from squall.chaos.runtimes.sim.runtime import SimRuntime
from squall.chaos.runtimes.sim.world import SimWorld
from squall.chaos.runtimes.wire.frames import BrokerTrafficKind
from tests.support.clusters.pretender import Pretending

PARTITION = {"at_s": 2, "duration_s": 3, "action": "partition", "target": "leader:appends-0-0"}


SMALL = {"topics": 1, "partitions": 1, "producers": 1, "readers": 1, "rate": 30}


def simulated(side: str, manner: str = "drop", seed: int = 5) -> tuple[Any, dict[str, Any]]:
    fault = {**PARTITION, "duration_s": 6, "params": {"side": side, "manner": manner}}
    result = simulate(make_plan({"runtime": "sim", "seed": seed, "time_s": 16, "workload": SMALL, "faults": [fault]}))
    return result, [json.loads(line) for line in result.run_files()["nemesis.jsonl"].splitlines()][-1]


@pytest.mark.parametrize("manner", ["drop", "refuse"])
def test_without_replication_followers_leave_the_isr_and_without_controllers_brokers_are_fenced(manner: str) -> None:
    seen = {}
    for side in ("replication", "controller"):
        result, line = simulated(side, manner)
        assert result.verdict == "valid", result.reasons
        assert line["evidence"], line
        assert not any(probe["ok"] for probe in line["evidence"]["during"])
        assert all(probe["ok"] for probe in line["evidence"]["other"])
        assert side in line["words"]["evidence"]
        traces = b"".join(text for name, text in result.files.items() if name.endswith("trace.jsonl"))
        within = [json.loads(each) for each in traces.splitlines()]
        seen[side] = {each["e"] for each in within if line["began"] / 1e9 + 1 < each["t"] < line["ended"] / 1e9}
    assert "isr_changed" in seen["replication"]
    assert "broker_fenced" not in seen["replication"], "every broker still talks to the controller"
    assert seen["controller"] & {"broker_fenced", "election"}, "a leader without controllers loses its registration"


def test_a_world_that_swallows_the_cut_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = "squall.chaos.faults.acts.traffic.frames_of"
    monkeypatch.setattr(frames, lambda cut, traffic: frames_of(cut, OTHER[traffic]))
    result, line = simulated("replication")
    assert result.verdict == "unknown"
    assert line["error"] == "a request that was cut got its answer"


OTHER = dict(zip(BrokerTrafficKind, reversed(BrokerTrafficKind), strict=True))


def test_a_world_that_cuts_the_whole_link_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall.chaos.faults.acts.traffic.frames_of", lambda cut, traffic: cut)
    result, line = simulated("replication")
    assert result.verdict == "unknown"
    assert line["error"] == "other requests over these links got no answer either: all of the link was cut"


@pytest.mark.gate
def test_a_runtime_that_another_one_wraps_can_be_asked_for_one_traffic() -> None:
    wrapped = Pretending(SimRuntime(SimWorld(7)))
    assert can_probe_traffic(wrapped)
    assert counts_calls(wrapped)
    assert not fakes_time(wrapped)
