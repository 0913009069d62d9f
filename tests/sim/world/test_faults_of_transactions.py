"""Faults aimed at transactions: at a coordinator, at a state, or at requests to and from coordinators."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

from squall.chaos.faults.kind import ClusterTraits, at_a_coordinator
from squall.chaos.faults.kinds import KINDS
from squall.chaos.faults.vocabulary import make_fault
from squall.chaos.plans.landing import landing
from squall.chaos.plans.plan import make_plan
from squall.chaos.plans.swarm import swarm_plan
from squall.chaos.runs.simulation import simulate

LOAD = {"name": "transactions", "generation": 1, "rate": 4}
MARKERS = {"api": "WriteTxnMarkers", "act": "delay", "delay_ms": 700, "count": 0, "side": "peers"}
ENDS = {"api": "EndTxn", "act": "error", "error": "NOT_COORDINATOR", "side": "clients", "count": 2}
ADDED = {"api": "AddPartitionsToTxn", "act": "error", "error": "CONCURRENT_TRANSACTIONS", "count": 2}
PREPARED = "after fault 0 began and txn:squall-0 == PrepareCommit"


def fault(at_s: float, duration_s: float, action: str, target: str, **more: Any) -> dict[str, Any]:
    return {"at_s": at_s, "duration_s": duration_s, "action": action, "target": target, **more}


def test_a_coordinator_that_has_decided_is_killed_and_the_others_are_told_errors() -> None:
    faults = [
        fault(1, 6, "protocol", "all", params=MARKERS),
        fault(1, 1, "kill", "coordinator:squall-0", when=PREPARED, within_s=5),
        fault(8, 2, "protocol", "coordinator", params=ENDS),
        fault(8, 2, "protocol", "all", params=ADDED),
    ]
    result = simulate(make_plan({"runtime": "sim", "seed": 4, "time_s": 12, "workload": LOAD, "faults": faults}))
    assert result.verdict == "valid", result.reasons
    last = {line["id"]: line for line in map(json.loads, result.run_files()["nemesis.jsonl"].splitlines())}
    assert all(line["evidence"] for line in last.values()), [line["error"] for line in last.values()]
    assert last[1]["trigger"]["seen"][1] == "PrepareCommit"
    assert len(last[1]["target"]["resolved"]) == 1


def test_seeds_aim_at_coordinators_and_at_what_they_are_asked_where_there_are_any() -> None:
    plans = [swarm_plan(seed, workload="transactions") for seed in range(60)]
    faults = [fault for plan in plans for fault in plan.faults]
    assert {"kill", "pause"} <= {fault.action for fault in faults if fault.target == "coordinator"}
    asked = {fault.params["api"] for fault in faults if fault.action == "protocol"}
    assert {"EndTxn", "WriteTxnMarkers", "Produce"} <= asked
    others = [fault for seed in range(60) for fault in swarm_plan(seed, workload="appends").faults]
    assert not [fault for fault in others if "coordinator" in fault.target or fault.params.get("api") == "EndTxn"]


def test_a_drawn_fault_that_lands_only_at_a_partition_stays_there() -> None:
    for action in ("leadership", "bit_rot", "crash_at", "damage"):
        one = make_fault(0, 1, 2, action, "leader", KINDS[action].defaults)
        assert at_a_coordinator(Random(1), one) == one
    assert at_a_coordinator(Random(1), make_fault(0, 1, 2, "kill", "node:2", {})).target == "node:2"
    assert at_a_coordinator(Random(1), make_fault(0, 1, 2, "kill", "leader", {})).target == "coordinator"


def test_no_marker_is_waited_for_where_coordinators_may_lead_everything() -> None:
    asked = {"api": "WriteTxnMarkers", "act": "error", "error": "NOT_LEADER_OR_FOLLOWER"}
    one = make_fault(0, 1, 2, "protocol", "all", asked)
    wide = ClusterTraits(nodes=3, replicas=3, flushes=False, places=3)
    assert landing(1, (one,), wide) == (one,)
    for narrow in (replace(wide, nodes=2), replace(wide, places=1)):
        (other,) = landing(1, (one,), narrow)
        assert other.params["api"] == "EndTxn"
        assert other.kind.check(other.params) == ""
