"""A nemesis.jsonl of another run, or one that was changed, makes no verdict: it is unknown, with the line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from squall.chaos.faults.kinds import KINDS
from squall.checkers import first_schema
from squall.checkers.in_memory import judge_bytes
from squall.checkers.nemesis_agreement import read
from squall.checkers.verdict import UNKNOWN, VALID, Verdict
from tests.support.histories.builder import MS, HistoryBuilder, generate
from tests.support.histories.nemesis_lines import fault_line, spoken

KILL: dict[str, Any] = {"action": "kill", "at_s": 1.5, "duration_s": 2.0, "target": "leader"}
SLOW: dict[str, Any] = {"action": "latency", "at_s": 4.0, "duration_s": 2.0, "params": {"latency_ms": 200}}
PLAN: dict[str, Any] = {
    "workload": {"acks": -1, "min_isr": 2, "replication_factor": 3},
    "limits": {"stuck_s": 15},
    "faults": [KILL, SLOW],
}
INFO = {
    "converged": {"ok": True, "took_s": 1, "lacking": {}},
    "began_ns": 0,
    "ended_ns": 1 << 40,
    "phases": [{"name": "heal"}, {"name": "converge"}, {"name": "final reads"}],
    "heal": {},
    "final_reads": [],
}


def lines() -> list[dict[str, Any]]:
    kill = json.loads(fault_line(0, "kill", 30, 50, planned={"at_s": 1.5, "duration_s": 2.0}))
    params = {"latency_ms": 200.0, "jitter_ms": 10.0, "side": "peers"}
    slow = json.loads(fault_line(1, "latency", 60, 80, params=params, planned={"at_s": 4.0, "duration_s": 2.0}))
    return [spoken(kill), spoken({**slow, "on": 65 * MS, "evidence": {"links": [], "measured": {}}})]


def judged(told: list[dict[str, Any]], cut: int = 0, **more: Any) -> Verdict:
    nemesis = b"".join(json.dumps(each).encode() + b"\n" for each in told)
    history = b"".join(generate(5, sends=32).sealed())
    return judge_bytes("r", history, nemesis[: len(nemesis) - cut], {**PLAN, **more}, info=INFO).verdict


def test_a_nemesis_that_did_what_was_planned_is_believed() -> None:
    assert judged(lines()).verdict == VALID, judged(lines()).reasons


CHANGES: dict[str, Mapping[str, Any]] = {
    "another action": {"action": "pause", "traits": []},
    "an id of another plan": {"id": 7},
    "a class that permits more": {"fault_class": "D"},
    "another moment": {"planned": {"at_s": 9.9, "duration_s": 2.0}},
    "another target": {"target": {"asked": "controller", "resolved": [2]}},
    "an end before its begin": {"ended": 29 * MS},
    "a begin before it was asked for": {"asked": 31 * MS},
    "whole before it began": {"on": 1},
    "an end after the run's": {"ended": 1 << 41},
    "a begin before the run's": {"asked": -5},
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_line_that_disagrees_with_the_plan_or_with_itself_is_unknown_with_its_number(what: str) -> None:
    kill, slow = lines()
    verdict = judged([{**kill, **CHANGES[what]}, slow])
    assert verdict.verdict == UNKNOWN
    assert any(reason.startswith("nemesis.jsonl: line 1: fault ") for reason in verdict.reasons), verdict.reasons


def test_a_parameter_that_the_plan_has_otherwise_is_unknown() -> None:
    kill, slow = lines()
    verdict = judged([kill, {**slow, "params": {**slow["params"], "latency_ms": 20.0}}])
    assert "nemesis.jsonl: line 2: fault 1 (latency): latency_ms is 20.0, and the plan has 200" in verdict.reasons


def test_an_unfinished_last_line_is_noted() -> None:
    assert any("unfinished line" in note for note in judged([*lines(), lines()[1]], 9).notes)
    assert not any("unfinished line" in note for note in judged(lines()).notes)


def test_a_loss_that_the_planned_faults_would_excuse_is_not_held_against_a_cluster_if_the_file_is_of_another_run() -> (
    None
):
    h = HistoryBuilder()
    lost = h.sent(h.producer(), 0)
    kept = h.sent(h.producer(), 1)
    assert lost != kept
    h.final([(1, kept)], at=0)
    faults = [{"action": "power_loss"}, {"action": "power_loss"}]
    plan = {"workload": {"acks": 1, "min_isr": 1, "replication_factor": 3}, "faults": faults}
    verdict = judge_bytes("r", b"".join(h.sealed()), fault_line(0) + fault_line(1), plan, info=INFO).verdict
    assert verdict.verdict == UNKNOWN


def test_what_is_read_from_a_directory_is_the_same(tmp_path: Path) -> None:
    notes: list[str] = []
    assert read(tmp_path, PLAN["faults"], INFO, notes) == []
    kill, slow = lines()
    (tmp_path / "nemesis.jsonl").write_text(json.dumps({**kill, "id": 1}) + "\n" + json.dumps(slow))
    found = read(tmp_path, PLAN["faults"], INFO, notes)
    assert found[0] == "nemesis.jsonl: line 1: fault 1 (kill): action is 'kill', and the plan has 'latency'"
    assert len(notes) == 1


def test_classes_of_early_lines_are_those_of_the_kinds() -> None:
    """A line's class is compared with them, so that they must agree as long as the kinds are there."""
    assert {name: KINDS[name].fault_class for name in first_schema.CLASSES} == dict(first_schema.CLASSES)
