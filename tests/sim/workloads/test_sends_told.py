"""Every acknowledgement of our own client reports how often its record was sent, in whole runs."""

from __future__ import annotations

import pytest

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.simulation import simulate
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import OK, SEND


@pytest.mark.parametrize("workload", ["appends", "pipeline", "transactions"])
def test_each_workload_tells_what_was_sent_once_and_what_was_sent_again(workload: str) -> None:
    cut = {"at_s": 3, "duration_s": 3, "action": "pause", "target": "all"}
    load = {"name": workload, "request_timeout_ms": 1000}
    result = simulate(make_plan({"seed": 1, "runtime": "sim", "time_s": 8, "workload": load, "faults": [cut]}))
    history = parse(result.run_files()["history.jsonl"].splitlines(keepends=True))
    acked = [row.tries for row in history.records.rows() if (row.kind, row.st) == (SEND, OK)]
    assert min(acked) == 1 < max(acked)
