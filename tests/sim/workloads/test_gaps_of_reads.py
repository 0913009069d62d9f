"""Log segments without records that a reader sees leave no gap in the history."""

from __future__ import annotations

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.simulation import simulate


def test_polls_that_bring_markers_and_aborted_records_alone_leave_no_gap() -> None:
    load = {"name": "transactions", "aborts": 0.9, "rate": 8, "partitions": 2, "transaction_timeout_ms": 2000}
    segments = {"topic_settings": {"segment.bytes": "2048"}}
    result = simulate(make_plan({"runtime": "sim", "warmup_s": 1, "time_s": 6, "workload": {**load, **segments}}))
    assert (result.verdict, result.reasons) == ("valid", ())
