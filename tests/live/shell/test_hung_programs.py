"""A program under test that hangs after an outage, in whole runs: the finding names the program, not the cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.live.shell.conftest import Squall

pytestmark = pytest.mark.night("whole runs; the gate has one")

HANGS = Path(__file__).with_name("hangs.py")
RUN = ("run", "--workload", "command", "--role", "both", "--seed", "3", "--faults", "pause", "--time", "14")
LIMITS = ("--stuck-s", "6", "--delivery-timeout-ms", "6000")
PROGRAM = "the program under test"


def verdict_of(folder: Path, started: list[Squall], records: int) -> tuple[int, dict[str, object]]:
    """Return the exit code and verdict.json of a run whose program hangs after `records` records."""
    squall = Squall(folder, (*RUN, *LIMITS, "--command", f"{sys.executable} {HANGS} {records}"))
    started.append(squall)
    return squall.code(), json.loads((folder / "runs/latest/verdict.json").read_text())


def test_a_program_that_hangs_after_an_outage_is_named(tmp_path: Path, started: list[Squall]) -> None:
    code, verdict = verdict_of(tmp_path, started, 600)
    assert (code, verdict["verdict"], verdict["blames"]) == (1, "invalid", PROGRAM), verdict["reasons"]
    anomalies = verdict["anomalies"]
    assert isinstance(anomalies, list)
    found = {(each["name"], each["evidence"]): each["blames"] for each in anomalies}
    assert found == {("stuck-producer", "client"): PROGRAM, ("stuck-consumer", "client"): PROGRAM}
    assert f"INVALID: {PROGRAM}" in started[0].said()


def test_of_a_program_that_answers_no_send_nothing_is_known(tmp_path: Path, started: list[Squall]) -> None:
    code, verdict = verdict_of(tmp_path, started, 0)
    assert (code, verdict["verdict"], verdict["blames"]) == (2, "unknown", "")
    why = f"{PROGRAM} acknowledged no send: nothing shows what it does when the cluster is well"
    assert isinstance(verdict["reasons"], list) and verdict["reasons"].count(why) == 1
