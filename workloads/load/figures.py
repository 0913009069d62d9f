"""Counts from the history what a load did. Does no I/O."""

from __future__ import annotations

from collections import Counter
from typing import Any

from squall.checkers.history.tables import EXECUTOR, OK, POLL, History

SINK, DRIVER = "reader", "driver"
"""Are the roles of the sink and the driver of a load in the history."""
LEVELS = ("read_uncommitted", "read_committed")


def measured(history: History) -> dict[str, Any]:
    """Return, for each isolation level with a load, how many batches and rows it committed, how many drivers and
    executors it had, and how many records the executors read: those beyond the rows were read again, because a driver
    or an executor was killed, or because a read failed.
    """
    found: dict[str, dict[str, int]] = {}
    part_of = {each.proc: (each.role, each.isolation) for each in history.processes if "load" in each.settings}
    processes = Counter(part_of.values())
    rows: Counter[tuple[str, int]] = Counter()
    batches: dict[int, set[int]] = {}
    for record in history.records.rows():
        if record.proc in part_of and record.st == OK:
            what, level = part_of[record.proc]
            rows[what, level] += record.kind == POLL
            if what == SINK and record.kind == POLL:
                batches.setdefault(level, set()).add(record.op)
    for level in sorted({level for _, level in processes}):
        read, there = rows[EXECUTOR, level], rows[SINK, level]
        found[LEVELS[level]] = {
            "loads": processes[SINK, level],
            "batches": len(batches.get(level, ())),
            "rows": there,
            "drivers": processes[DRIVER, level],
            "executors": processes[EXECUTOR, level],
            "read": read,
            "read_again": max(0, read - there),
        }
    return {"loads": found} if found else {}
