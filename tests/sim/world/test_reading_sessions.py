"""Readers in fetch sessions: a response that leaves a partition out means that nothing is new there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from squall.broker.apis.fetch_session import FetchSession
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.simulation import SimResult, simulate

STUCK_S = 4.0
LOAD_S = 16.0
OF_CONSUMERS = -1


def plan(*, both: bool) -> Plan:
    """Return a plan in which a broker hangs briefly at the beginning. After that the load writes to partition 0, and to
    partition 1 if `both`, for much longer than a reader may be stuck.
    """
    records = [[0.1, 0, "appends-0", 0, 100], [0.1, 0, "appends-0", 1, 100]]
    records += [[2.0 + n / 5, 0, "appends-0", n % 2 if both else 0, 100] for n in range(int((LOAD_S - 2) * 5))]
    return make_plan(
        {
            "seed": 1,
            "runtime": "sim",
            "warmup_s": 0,
            "time_s": LOAD_S,
            "cluster": {"nodes": 3},
            "workload": {"topics": 1, "partitions": 2, "producers": 1, "readers": 1, "fetch_sessions": True},
            "limits": {"stuck_s": STUCK_S},
            "faults": [{"at_s": 0.5, "duration_s": 0.5, "action": "pause", "target": "node:1"}],
            "operations": records,
        }
    )


def answers_about(result: SimResult, part: int) -> list[float]:
    """Return when, in seconds, the load's reader got an answer about a partition."""
    found, readers, ops = [], set[int](), dict[int, int]()
    for line in map(json.loads, result.files["history.jsonl"].splitlines()):
        if line["e"] == "p" and line["role"] == "reader":
            readers.add(line["p"])
        elif line["e"] == "i" and line["f"] == "poll":
            ops[line["op"]] = line["p"]
        elif line["e"] == "c" and ops.get(line["op"]) in readers:
            found += [line["t"] / 1e9 for got in line["got"] if got[0] == part]
    return found


def test_a_reader_is_not_stuck_where_nothing_arrives() -> None:
    result = simulate(plan(both=False))
    assert (result.verdict, result.reasons) == ("valid", ())
    times = answers_about(result, 1)
    assert max(b - a for a, b in zip(times, times[1:], strict=False)) < 2.0, "it says so again and again"


@pytest.mark.parametrize("both", [False, True], ids=["no load", "under load"])
def test_a_broker_that_leaves_out_what_is_new_is_found(monkeypatch: pytest.MonkeyPatch, both: bool) -> None:
    rule = FetchSession.changed

    def leaves_out(self: FetchSession, outs: list[Any]) -> list[Any]:
        if self.replica_id == OF_CONSUMERS and not self.full:
            outs = [item for item in outs if item[1].index != 1]
        return rule(self, outs)

    monkeypatch.setattr(FetchSession, "changed", leaves_out)
    # By the history alone: the invariant of fetch sessions sees it before.
    result = simulate(plan(both=both), stop_at_first=False)
    assert result.verdict == "invalid"
    assert "session-omits-the-unchanged" in {each.name for each in result.violations}
    assert result.judgement is not None
    assert result.judgement.findings is not None
    evidence = {each.evidence for each in result.judgement.findings if each.anomaly == "stuck-consumer"}
    assert evidence == ({"", "live"} if both else {"live"}), "the history shows it where somebody was told of an end"
