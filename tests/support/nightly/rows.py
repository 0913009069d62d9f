"""Hand-made rows for the store of nights and for the durability table."""

from __future__ import annotations

from typing import Any

from squall.checkers.nightly.store import TABLES

Row = dict[str, Any]
BEGAN = "2026-07-0{}T01:00:00+00:00"


def night(name: str = "n1", **more: Any) -> Row:
    """Return the row of a night. The digit at the end of its name orders the nights in time."""
    empty = dict.fromkeys(TABLES["nights"].names)
    usual = {
        "night": name,
        "began": BEGAN.format(name[-1]),
        "ended": "2026",
        "planned": 1,
        "left_out": [],
        "not_run": [],
    }
    return {**empty, **usual, "exit": 0, "interrupted": False, "problems": [], **more}


def run(item: str = "one", name: str = "n1", **more: Any) -> Row:
    """Return the row of a valid run with acks=all that lost nothing."""
    empty = dict.fromkeys(TABLES["runs"].names)
    usual = {"night": name, "item": item, "attempt": 1, "counts": True, "run": f"runs/{item}", "verdict": "valid",
             "configuration": "acks=all, min ISR 2 of 3", "target": "squall", "runtime": "process",
             "workload": "appends", "axes": {"acks": "all"}, "classes": "P N", "faults": ["kill"], "why": "",
             "measured": True, "acknowledged": 1000, "lost": 0, "duplicated": 0, "unavailable_ms": 2500.0}  # fmt: skip
    return {**empty, **usual, **more}


def finding(item: str = "one", name: str = "n1", **more: Any) -> Row:
    """Return the row of a finding: lost records that the configuration does not permit."""
    empty = dict.fromkeys(TABLES["findings"].names)
    usual = {"night": name, "item": item, "attempt": 1, "run": f"runs/{item}", "anomaly": "lost-write", "evidence": "",
             "configuration": "acks=all, min ISR 2 of 3", "target": "squall", "runtime": "process",
             "workload": "appends", "classes": "P N", "permitted": False, "unexpected": False,
             "promise": "acks=all, min ISR 2 or more", "why": "not permitted", "count": 7, "witnesses": 7,
             "fingerprint": "f1", "cause": "A broker truncates the partition.", "place": "load with faults, after kill",
             "first_s": 4.0, "last_s": 9.0, "story": ["5.000 s  Fault 0 begins: kill of broker 1."]}  # fmt: skip
    return {**empty, **usual, **more}


def cell(**more: Any) -> Row:
    """Return a row of the durability table, as Spark computes it from two valid runs with acks=all."""
    behind = [{"night": "n1", "item": item, "attempt": 1, "run": f"runs/{item}", "verdict": "valid", "lost": 0,
               "unavailable_ms": 2500.0} for item in ("one", "two")]  # fmt: skip
    usual = {"configuration": "acks=all, min ISR 2 of 3", "classes": "P N", "target": "squall", "runtime": "process",
             "tried": 2, "runs": 2, "invalid": 0, "unknown": 0, "promises": ["acks=all, min ISR 2 or more"],
             "permitted": [], "workloads": ["appends"], "acknowledged": 2000, "lost": 0, "lost_unacknowledged": 0,
             "losing": 0, "duplicated": 0, "lost_tails": 0, "lost_tail_records": None, "lost_tail_ms": None,
             "leader_changes": 4, "unavailable_ms": 2500.0, "recovery_ms": 1200.0, "recovery_median_ms": 1100.0,
             "unrecovered": 0, "behind": behind,
             "latency": {"calm": {100: 900, 150: 90}, "faulty": {100: 5, 900: 5}}}  # fmt: skip
    return {**usual, **more}


def losing(**more: Any) -> Row:
    """Return a row of the durability table for acks=1, which permits losses."""
    usual = {"configuration": "acks=1, min ISR 1 of 3", "promises": ["acks=1; idempotence off"], "lost": 80,
             "permitted": ["lost-write", "unseen", "duplicate"], "losing": 2, "lost_tails": 5,
             "lost_tail_records": 30, "lost_tail_ms": 420.0}  # fmt: skip
    return cell(**{**usual, **more})


def tables(nights: list[Row], runs: list[Row], findings: list[Row]) -> dict[str, list[Row]]:
    """Return the tables that a report is made of."""
    return {"nights": nights, "runs": runs, "findings": findings}
