"""Readers of brokers whose responses have room for few records."""

from __future__ import annotations

import pytest

from squall.chaos.plans.parts import FAST_FAILOVER
from squall.chaos.plans.plan import make_plan
from squall.chaos.runs.simulation import simulate


@pytest.mark.parametrize("sessions", [False, True])
def test_no_partition_starves_another_where_answers_are_small(sessions: bool) -> None:
    """One broker leads all partitions, each response holds one partition's record, and one partition always has more.
    """
    records = [[0.1, 0, "appends-0", 1, 1000], [0.1, 0, "appends-0", 2, 1000]]
    records += [[n / 20, 0, "appends-0", 0, 1000] for n in range(120)]
    plan = make_plan(
        {
            "seed": 1,
            "runtime": "sim",
            "warmup_s": 0,
            "time_s": 6,
            "cluster": {"nodes": 1, "settings": {**FAST_FAILOVER, "fetch.max.bytes": "1024"}},
            "workload": {
                "topics": 1,
                "partitions": 3,
                "replication_factor": 1,
                "min_isr": 1,
                "producers": 1,
                "readers": 1,
                "poll_pause_ms": 100,
                "fetch_sessions": sessions,
            },
            "limits": {"stuck_s": 4},
            "operations": records,
        }
    )
    result = simulate(plan)
    assert result.verdict == "valid", result.reasons
