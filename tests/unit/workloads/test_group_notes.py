"""The history lines that group members write are those of docs/run-directory.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from squall.broker.real_env import RealEnv
from squall.workloads.client.outcomes import OperationStatus
from squall.workloads.group_notes import HeartbeatTimes, MemberHistoryWriter, MemberIdentity
from squall.workloads.recorder import Recorder

WHO = MemberIdentity("m-1", 3)
HERE = {"g": "g-0", "m": "m-1", "gen": 3, "inst": "i-0"}


@pytest.fixture
def notes(tmp_path: Path) -> MemberHistoryWriter:
    recorder = Recorder(RealEnv("harness"), str(tmp_path / "history.jsonl"), "run-1")
    recorder.partition("t", 0)
    recorder.partition("t", 1)
    return MemberHistoryWriter(recorder, recorder.process("reader", "1.0", {}), "g-0", "i-0")


def written(notes: MemberHistoryWriter, tmp_path: Path) -> list[dict[str, Any]]:
    """All lines behind the declarations, without their times."""
    notes.recorder.flush()
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_bytes().splitlines()[4:]]
    return [{name: value for name, value in line.items() if name != "t"} for line in lines]


def test_what_a_member_owns_is_told_from_its_beginning_to_its_end(notes: MemberHistoryWriter, tmp_path: Path) -> None:
    notes.rejoining(WHO, "start")
    notes.joined(WHO, "range", [("t", 1), ("t", 0)], leader=True)
    notes.assigned(WHO, {("t", 0): 7, ("t", 1): 0}, {("t", 1)}, [("t", 0), ("t", 1)])
    notes.revoked(WHO, {("t", 0): 9}, HeartbeatTimes(5, 6))
    notes.lost(WHO, {("t", 1): 2}, HeartbeatTimes(), "UNKNOWN_MEMBER_ID")
    notes.still(WHO, "halt", 1500)
    notes.left(WHO, "close", "")
    event = {"e": "x", "p": 0, **HERE}
    assert written(notes, tmp_path) == [
        {**event, "kind": "rejoining", "why": "start"},
        {**event, "kind": "joined", "leader": True, "protocol": "range", "parts": [0, 1]},
        {
            **event, "kind": "assigned", "at": {"0": 7, "1": 0}, "owned": [0, 1],
            "from": {"0": "committed", "1": "reset"},
        },
        {**event, "kind": "revoked", "parts": [0], "at": {"0": 9}, "beat": 5, "beat_answered": 6},
        {
            **event, "kind": "lost", "parts": [1], "at": {"1": 2}, "beat": -1, "beat_answered": -1,
            "why": "UNKNOWN_MEMBER_ID",
        },
        {**event, "kind": "still", "what": "halt", "ms": 1500},
        {**event, "kind": "left", "why": "close"},
    ]  # fmt: skip


def test_commits_and_what_a_group_was_told_are_operations(notes: MemberHistoryWriter, tmp_path: Path) -> None:
    op = notes.begin_commit(WHO, {("t", 0): 9, ("t", 1): 4}, "manual", metadata={("t", 0): "seen", ("t", 1): "seen"})
    notes.committed(op, OperationStatus.FAIL, "OFFSET_METADATA_TOO_LARGE", {("t", 1): "OFFSET_METADATA_TOO_LARGE"})
    asked = notes.begin_fetch(MemberIdentity(), [("t", 1), ("t", 0)], stable=True)
    notes.fetched(asked, {("t", 0): 9, ("t", 1): -1}, {("t", 0): "seen", ("t", 1): ""}, "")
    refused = notes.begin_fetch(WHO, [("t", 0)], stable=False)
    notes.fetched(refused, {}, {}, "NOT_COORDINATOR")
    first = {"e": "i", "p": 0, **HERE}
    assert written(notes, tmp_path) == [
        {
            **first, "op": 0, "f": "commit", "at": {"0": 9, "1": 4}, "meta": {"0": "seen", "1": "seen"},
            "why": "manual",
        },
        {
            "e": "c", "op": 0, "st": 1, "errs": {"1": "OFFSET_METADATA_TOO_LARGE"}, "err": "OFFSET_METADATA_TOO_LARGE",
        },
        {**first, "op": 1, "f": "fetch_offsets", "m": "", "gen": -1, "parts": [0, 1], "stable": True},
        {"e": "c", "op": 1, "st": 0, "off": {"0": 9, "1": -1}, "meta": {"0": "seen"}},
        {**first, "op": 2, "f": "fetch_offsets", "parts": [0], "stable": False},
        {"e": "c", "op": 2, "st": 1, "err": "NOT_COORDINATOR"},
    ]  # fmt: skip


def test_a_commit_inside_a_transaction_and_a_record_made_of_another_say_so(
    notes: MemberHistoryWriter, tmp_path: Path
) -> None:
    recorder = notes.recorder
    txn = recorder.begin_txn(notes.process, "squall-0", 4000)
    notes.begin_commit(WHO, {("t", 0): 1}, "manual", txn=txn, producer=(8, 2))
    recorder.invoke_send(notes.process, 1, 5, None, 6, 100, txn=txn, source=77)
    _, commit, send = written(notes, tmp_path)
    assert (commit["x"], commit["pid"], commit["pe"]) == (txn, 8, 2)
    assert (send["f"], send["x"], send["src"], send["v"]) == ("send", txn, 77, 5)
