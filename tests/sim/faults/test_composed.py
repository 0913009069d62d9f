"""Faults of links and of clients in small simulated runs: each takes effect, or the verdict is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from squall.chaos.plans.plan import PlanError, make_plan
from squall.chaos.runs.simulation import simulate
from squall.chaos.runtimes.sim.wires import SimLink
from squall.checkers.history.tables import RecordedFault
from squall.checkers.nemesis_log import parse_faults
from squall.checkers.verdict import UNKNOWN, VALID
from squall.workloads.control import ClientHandle


def simulated(
    *faults: dict[str, Any], time_s: float = 12, **other: Any
) -> tuple[str, tuple[str, ...], list[RecordedFault]]:
    """Return the verdict, its reasons, and the faults as they are reported."""
    load = {"topics": 1, "partitions": 2, "producers": 2, "readers": 1, "rate": 40, **other}
    plan = make_plan(
        {"runtime": "sim", "seed": 5, "warmup_s": 1, "time_s": time_s, "workload": load, "faults": list(faults)}
    )
    result = simulate(plan)
    told, _ = parse_faults(result.run_files()["nemesis.jsonl"].splitlines(keepends=True))
    return result.verdict, result.reasons, told


def test_a_crashed_producer_is_followed_by_another_process_and_nothing_is_lost() -> None:
    fault = {"at_s": 2, "duration_s": 1, "action": "client", "target": "producer:1"}
    verdict, reasons, (told,) = simulated(fault)
    assert verdict == VALID, reasons
    assert told.evidence is not None
    assert told.evidence["client"] == "producer 1"
    assert told.evidence["process"] != told.evidence["followed_by"]


@pytest.mark.parametrize("target", ["producer:0", "reader"])
def test_a_client_that_stands_still_leaves_a_gap(target: str) -> None:
    fault = {"at_s": 2, "duration_s": 3, "action": "client", "target": target, "params": {"how": "pause"}}
    verdict, reasons, (told,) = simulated(fault)
    assert verdict == VALID, reasons
    assert told.evidence is not None
    assert told.evidence["during"] == 0
    assert told.evidence["after"] > 0


@pytest.mark.parametrize("stream", ["there", "back"])
def test_requests_that_overtake_each_other_lose_and_double_nothing(stream: str) -> None:
    slow = {"side": "clients", "latency_ms": 20, "jitter_ms": 5}
    params = {"api": "Produce", "act": "reorder", "count": 0, "side": "clients", "stream": stream}
    latency = {"at_s": 1, "duration_s": 5, "action": "latency", "target": "all", "params": slow}
    reorder = {"at_s": 2, "duration_s": 3, "action": "protocol", "target": "all", "params": params}
    in_flight = {"rate": 300, "linger_ms": 0, "batch_bytes": 1024}
    verdict, reasons, (_, told) = simulated(latency, reorder, time_s=9, **in_flight)
    assert verdict == VALID, reasons
    assert told.evidence is not None
    assert sum(told.evidence["hits"]) > 3


@pytest.mark.parametrize("how", ["crash", "pause"])
def test_a_client_that_only_was_told_to_leaves_the_run_unknown(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClientHandle, "hold", lambda handle, who: None)
    monkeypatch.setattr(ClientHandle, "crash", lambda handle, who: handle.processes[-1])
    fault = {"at_s": 2, "duration_s": 2, "action": "client", "target": "producer:1", "params": {"how": how}}
    verdict, reasons, (told,) = simulated(fault)
    assert verdict == UNKNOWN
    assert told.evidence is None
    assert "producer 1" in reasons[0]


@pytest.mark.parametrize(
    ("action", "params"),
    [
        ("partition", {"shape": "ring", "manner": "hold"}),
        ("bandwidth", {"side": "both"}),
        ("flapping", {"side": "clients"}),
        ("protocol", {"api": "Fetch", "act": "drop"}),
    ],
)
def test_a_fault_of_links_that_is_switched_off_makes_the_whole_run_unknown(
    action: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = {"at_s": 2, "duration_s": 3, "action": action, "target": "leader", "params": params}
    verdict, reasons, _ = simulated(fault, time_s=8)
    assert verdict == VALID, reasons
    monkeypatch.setattr(SimLink, "add", lambda wire, name, fault: None)
    verdict, reasons, (told,) = simulated(fault, time_s=8)
    assert verdict == UNKNOWN
    assert told.evidence is None
    assert action in reasons[0]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            {"action": "client", "target": "producer:2"},
            "there is no producer:2: the workload has producer:0 to producer:1",
        ),
        (
            {"action": "client", "target": "reader:1", "params": {"how": "pause"}},
            "there is no reader:1: the workload has reader:0",
        ),
        ({"action": "client", "target": "producer:"}, "nothing stands behind the colon"),
    ],
)
def test_a_client_that_there_is_not_is_refused_when_the_plan_is_read(fault: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        simulated({"at_s": 2, "duration_s": 1, **fault})


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_rolling_restart_waits_for_each_broker_to_be_in_sync(how: str) -> None:
    fault = {"at_s": 1, "duration_s": 60, "action": "rolling", "target": "all", "params": {"how": how}}
    verdict, reasons, (told,) = simulated(fault, time_s=40)
    assert verdict == VALID, reasons
    assert told.evidence is not None
    steps = told.evidence["steps"]
    assert [step["node"] for step in steps] == [1, 2, 3]
    for earlier, later in zip(steps, steps[1:], strict=False):
        assert earlier["up"]["ready_ns"] < earlier["in_sync_ns"] <= later["down"]["asked_ns"]


def test_a_rolling_restart_that_takes_longer_than_it_may_has_not_landed() -> None:
    behind = {"at_s": 1, "duration_s": 8, "action": "pause", "target": "node:2"}
    restart = {"at_s": 6, "duration_s": 1, "action": "rolling", "target": "node:1"}
    verdict, reasons, _ = simulated(behind, restart)
    assert verdict == UNKNOWN
    assert "was not in sync again within the 1 s" in reasons[0]


def test_a_rolling_restart_does_not_keep_down_what_another_fault_took_down() -> None:
    restart = {"at_s": 1, "duration_s": 60, "action": "rolling", "target": "all", "params": {"how": "kill"}}
    disk = {"at_s": 1.1, "duration_s": 3, "action": "disk", "target": "node:3", "params": {"how": "EIO", "op": "write"}}
    _, reasons, told = simulated(restart, disk, time_s=40)
    by_action = {fault.action: fault for fault in told}
    hurt = by_action["disk"].evidence
    assert hurt is not None, reasons
    assert len(hurt["started"]) == 1, "by the one that took it down, when that ends"


def test_two_rolling_restarts_at_once_take_their_turns() -> None:
    rolling = {"duration_s": 60, "action": "rolling", "target": "all", "params": {"how": "kill"}}
    verdict, reasons, told = simulated({"at_s": 1, **rolling}, {"at_s": 1.2, **rolling}, time_s=60)
    assert verdict == VALID, reasons
    assert [len(each.evidence["steps"]) for each in told if each.evidence is not None] == [3, 3]
