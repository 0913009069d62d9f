"""Checks what a test costs: its own CPU, and that of processes that it started, whether they have ended or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from squall.chaos.errors import PreconditionError
from tests.support.gate import costs
from tests.support.gate.costs import Cost
from tests.support.gate.results import Result

BURNS = """
import time
while time.process_time() < 0.3: pass
print("burnt", flush=True)
input()
"""


def test_a_process_counts_while_it_runs_and_once_it_has_ended() -> None:
    began = costs.now()
    with subprocess.Popen([sys.executable, "-c", BURNS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        running = costs.since(began)
        child.stdin.close()
    ended = costs.since(began)
    assert running.cpu_s >= 0.29
    assert ended.cpu_s >= running.cpu_s - 0.02
    assert ended.cpu_s < running.cpu_s + 0.29, "it counts once"


def test_a_row_stays_unless_its_test_has_passed() -> None:
    old = {"a": Cost(1, 1), "b": Cost(1, 1)}
    results = [Result("a", "failed", 9, 9), Result("b", "passed", 2, 2), Result("c", "skipped", 0, 0)]
    assert costs.renewed(old, results) == {"a": Cost(1, 1), "b": Cost(2, 2), "c": Cost(0, 0)}


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = {'tests/unit/a.py::test_x[a::b "c"]': Cost(0.25, 0.5), "tests/sim/b.py::test_y": Cost(3, 4)}
    costs.write(rows, tmp_path / "costs.json")
    assert costs.read(tmp_path / "costs.json") == rows
    assert costs.read(tmp_path / "none.json") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting property name"),
        ("[]", "no attribute 'items'"),
        ('{"a": {"t": [-1, 1]}}', "-1 is no number of seconds"),
        ('{"a": {"t": [NaN, 1]}}', "nan is no number of seconds"),
        ('{"a": {"t": [1, 1e400]}}', "inf is no number of seconds"),
        ('{"a": {"t": [1, 1], "t": [0, 0]}}', "'t' stands there twice"),
        ('{"a": {"t": [1]}}', "wall_s"),
    ],
)
def test_what_is_not_a_file_of_costs_is_refused(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "costs.json").write_text(text)
    with pytest.raises(PreconditionError, match="git checkout tests/costs.json") as refused:
        costs.read(tmp_path / "costs.json")
    assert why in str(refused.value)
