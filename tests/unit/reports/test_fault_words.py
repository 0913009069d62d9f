"""Checks what a page says of faults of links, of clients, and of those in steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.reports.fault_words import evidence_text, fault_rows, whom
from squall.reports.run_files import RunFiles
from tests.support.histories.nemesis_lines import spoken

WHOLE, SLOW = {"ok": True, "round_trip_ms": 1.2, "error": None}, {"ok": True, "round_trip_ms": 320.4, "error": None}
ENDED = {"ok": False, "round_trip_ms": 12.0, "error": "ended: reset"}


@pytest.mark.parametrize(
    ("action", "evidence", "said"),
    [
        ("bandwidth", {"links": ["1->2"], "before": [WHOLE], "during": [SLOW]}, "took 320 ms while on, 1 ms before"),
        ("limit_data", {"links": ["1->2"], "during": [ENDED]}, "over 1 links, after 12 ms: ended: reset."),
        (
            "flapping",
            {"links": ["1->2"], "turns": [{"down": 0, "up": 1, "of": 1}, {"down": 0, "up": 1, "of": 1}]},
            "Cut and healed 2 times: 0 of 2 probes answered while cut, 2 of 2 between.",
        ),
        (
            "rolling",
            {"steps": [{"node": 2, "up": {"incarnation": 3, "ready_ns": 10**9}, "in_sync_ns": 3 * 10**9}]},
            "Broker 2 came back as incarnation 3; in sync 2.00 s later.",
        ),
        (
            "upgrade",
            {"steps": [{"node": 2, "was": {"runs": "sha256:aa"}, "is": {"runs": "sha256:bb", "by": "the engine"}}]},
            "What ran was aa before, bb after (the engine).",
        ),
        (
            "kill",
            {
                "down": [{"node": 2, "found": "down", "by": {"0": "stop"}, "asked": 6, "answered": 0}],
                "up": [{"node": 2, "held_by": [4], "state": "down"}],
            },
            (
                "Broker 2 was down already, by fault 0 (stop): 0 of 6 probes were answered. "
                "Broker 2 was left down, by fault 4."
            ),
        ),
        ("pause", {"resumed": [{"node": 2, "held_by": [4]}]}, "Broker 2 was left paused, by fault 4."),
        (
            "client",
            {"client": "producer 1", "process": 4, "followed_by": 9},
            "Producer 1: process 4 was gone, process 9 followed.",
        ),
        (
            "client",
            {"client": "reader 0", "before": 7, "during": 0, "after": 1},
            "Reader 0 began 7 things before, 0 meanwhile, 1 at once after.",
        ),
    ],
)
def test_evidence_in_words(action: str, evidence: dict[str, Any], said: str) -> None:
    fault = {"action": action, "asked": 1, "ended": 2, "evidence": evidence, "error": None}
    assert said in evidence_text(spoken(fault))


@pytest.mark.parametrize(
    ("resolved", "said"),
    [([2], "broker 2"), ([1, 3], "brokers 1, 3"), (["CLIENT2"], "zone CLIENT2"), ([], ""), (None, "")],
)
def test_whom_a_fault_hit_is_brokers_or_a_zone(resolved: object, said: str) -> None:
    assert whom(resolved) == said


@pytest.mark.parametrize(
    ("evidence", "hit"),
    [
        ({"client": "member 1", "process": 7, "followed_by": 9}, "member 1 (process 7)"),
        ({"client": "member 1", "first": 7, "second": 10}, "member 1 (process 7)"),
        ({"client": "reader 0", "before": 7}, "reader 0"),
        ({"links": []}, ""),
    ],
)
def test_a_fault_of_a_member_names_the_member_that_it_hit(evidence: dict[str, Any], hit: str, tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    files.faults = [
        {"id": 0, "action": "member_crash", "target": {"asked": "member", "resolved": []}, "evidence": evidence},
        {"id": 1, "action": "member_crash", "target": {"asked": "member", "resolved": []}, "seen": evidence},
        {"id": 2, "action": "kill", "target": {"asked": "leader", "resolved": [2]}, "evidence": evidence},
    ]
    assert [row.hit for row in fault_rows(files)] == [hit, hit, "broker 2"]
