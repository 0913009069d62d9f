"""The fault `stop` lets a broker end by itself: after the controller's permission, or with a note that none answered.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from squall.broker.controller import brokers
from squall.chaos.faults.kinds import stop
from squall.chaos.mutants.hunt_plans import fault, hunt_plan
from squall.chaos.runs.simulation import simulate
from squall.checkers.fault_classes import not_landed
from tests.sim.world.swallowing import deaf

Patch = pytest.MonkeyPatch
CUT = fault(1.0, 6.0, "partition", "node:2", shape="isolate", manner="drop")
STOP = fault(1.5, 3.0, "stop", "node:2")


def played(*faults: dict[str, Any]) -> dict[str, Any]:
    """Return the line of the last of these faults."""
    result = simulate(hunt_plan(5, list(faults)), stop_at_first=False)
    assert result.judgement is not None
    last = result.judgement.faults[-1]
    lines = map(json.loads, result.run_files()["nemesis.jsonl"].splitlines())
    line: dict[str, Any] = {each["id"]: each for each in lines}[last.id]
    assert bool(not_landed(last)) == (line["evidence"] is None), "judges agree with the nemesis"
    assert result.verdict == ("valid" if line["evidence"] else "unknown"), result.reasons
    return line


def test_a_broker_that_reaches_its_controller_is_let_go() -> None:
    down = played(STOP)["evidence"]["down"][0]
    assert (down["controlled"], down["alone"]) == (True, False)


def test_a_broker_that_is_cut_off_stops_all_the_same_and_says_that_no_controller_answered() -> None:
    line = played(CUT, STOP)
    down = line["evidence"]["down"][0]
    assert (down["controlled"], down["alone"], down["code"]) == (False, True, 0)
    assert "not controlled, because no controller answered it" in stop.describe_evidence(line["evidence"])


def test_a_broker_that_is_cut_off_and_ignores_sigterm_did_not_stop(monkeypatch: Patch) -> None:
    deaf(monkeypatch)
    assert played(CUT, STOP)["evidence"] is None


def test_a_controller_that_answers_and_lets_nobody_go_is_no_reason(monkeypatch: Patch) -> None:
    """The broker ends by itself after a while, and does not claim that no controller answered."""
    stopping = brokers._heartbeat_of_stopping

    def kept(*given: Any) -> Any:
        reply = stopping(*given).reply
        reply.is_fenced = reply.should_shut_down = False
        return brokers.Decision(reply, (), given[-1])

    monkeypatch.setattr(brokers, "_heartbeat_of_stopping", kept)
    line = played(STOP)
    assert line["evidence"] is None
    assert line["seen"]["down"][0]["code"] == 0
    assert not line["seen"]["down"][0]["alone"]
