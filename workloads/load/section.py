"""Counts from the history what a load did, and makes the report's section about it. Does no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from squall.checkers.history.tables import EXECUTOR, OK, POLL
from squall.workloads.section import SectionTable, WorkloadSection

if TYPE_CHECKING:
    from squall.checkers.history.tables import History

COLUMNS = ("load", ">batches", ">rows", ">drivers", ">executors", ">read", ">read again")
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


def section_of(figures: Mapping[str, Any]) -> WorkloadSection | None:
    """Return the report's section that shows these figures; None if there are none. Raise KeyError or TypeError if the
    figures are not those of `measured`.
    """
    loads: Mapping[str, Mapping[str, int]] = figures.get("loads", {})
    if not loads:
        return None
    names = ("batches", "rows", "drivers", "executors", "read", "read_again")
    rows = [[level, *(f"{each[name]:,}" for name in names)] for level, each in loads.items()]
    sentence = " ".join(
        f"At {level}, {each['rows']:,} rows in {each['batches']:,} batches; {each['read_again']:,} were read again."
        for level, each in loads.items()
    )
    table = SectionTable("What the load committed, and what it read for that", COLUMNS, rows)
    return WorkloadSection("Load", sentence, None, [table])
