"""Simulated runs of the workload `load`: whatever is killed, each committed record comes into the sink once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from squall.chaos.mutants.bugs.loads import load_kill, load_plan
from squall.chaos.mutants.hunt_plans import Values
from squall.chaos.mutants.txn_plans import txn
from squall.chaos.runs.saved import save
from squall.chaos.runs.simulation import simulate
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import COMMIT, EXECUTOR, OK, POLL, SEND, History
from squall.workloads.kill_moments import DONE, IN_SINK, MOMENTS, PLANNED, READ, READING
from squall.workloads.load.figures import DRIVER, SINK

pytestmark = pytest.mark.gate

TRANSACTIONS = [txn(0.1 + 0.2 * n, records=3, end=("commit", "abort", "commit")[n % 3]) for n in range(15)]
COMMITTED = 30


def run(folder: Path, faults: Sequence[Values], **plan: Any) -> tuple[History, list[str], list[dict[str, Any]]]:
    """Return the history of a valid run, why ranges could not be read, and the kills in the faults' evidence."""
    result = simulate(load_plan(4, faults, TRANSACTIONS, time_s=4.0, **plan))
    assert result.verdict == "valid", result.reasons
    path = save(result, folder, "run").path
    lines = (path / "history.jsonl").read_bytes().splitlines(keepends=True)
    failed = [event["why"] for event in map(json.loads, lines) if event.get("kind") == "range_failed"]
    last = {fault["id"]: fault for fault in map(json.loads, (path / "nemesis.jsonl").read_bytes().splitlines())}
    return parse(lines), failed, [kill for fault in last.values() for kill in fault["evidence"].get("kills", [])]


def reads(history: History, role: str) -> list[tuple[int, int, int]]:
    """Return (partition, offset, value) of the records that processes of this role got."""
    procs = {each.proc for each in history.processes if each.role == role and "load" in each.settings}
    rows = (each for each in history.records.rows() if each.kind == POLL and each.proc in procs)
    return [(each.part, each.off, each.val) for each in rows]


def processes(history: History, role: str) -> int:
    return sum(each.role == role and "load" in each.settings for each in history.processes)


def committed(history: History) -> set[int]:
    """Return the values of the committed transactions."""
    txns = {txn.op for txn in history.txns.rows() if txn.how == COMMIT and txn.st == OK}
    return {each.val for each in history.members.rows() if each.kind == SEND and each.txn in txns}


@pytest.mark.parametrize("moment", MOMENTS)
def test_after_a_kill_at_any_moment_each_record_is_there_once(moment: str, tmp_path: Path) -> None:
    history, _, kills = run(tmp_path, [load_kill(at_s, 0.1, moment, 1) for at_s in (1.0, 2.0)])
    assert [kill["moment"] for kill in kills] == [moment] * 2
    assert all(kill["followed_by"] > kill["process"] for kill in kills)
    rows, read = reads(history, SINK), reads(history, EXECUTOR)
    found = Counter(value for *_, value in rows)
    assert len(committed(history)) == COMMITTED
    assert {value: found[value] for value in committed(history)} == dict.fromkeys(committed(history), 1)
    assert max(found.values()) == 1
    assert {*read} == {*rows}
    again = len(read) - len(rows)
    assert again > 0 if moment in (READ, IN_SINK, READING, DONE) else again == 0
    drivers = processes(history, DRIVER)
    assert drivers == (3 if moment in (PLANNED, READ, IN_SINK) else 1)


def test_records_that_are_deleted_under_a_plan_end_a_load_and_another_one_begins(tmp_path: Path) -> None:
    faults = [
        {"at_s": 1.0 + 0.7 * n, "duration_s": 0.3, "action": "topics", "target": "all",
         "params": {"how": "delete_records"}} for n in range(3)
    ]  # fmt: skip
    history, failed, _ = run(tmp_path, [*faults, load_kill(0.6, 2.0, PLANNED, 600)])
    assert any("OffsetsGone" in why for why in failed)
    assert processes(history, SINK) > 1
