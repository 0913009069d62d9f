"""An oracle for the Spark jobs of nights: computes the stored rows and the durability table from the histories, in
plain Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from squall.checkers.anomalies.registry import LOSS, find_all
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import read_lines
from squall.checkers.history.tables import OK, SEND, History
from squall.checkers.history.values import producer_of
from squall.checkers.measures import measure
from squall.checkers.metrics import (
    CALM,
    FAULT_GAP,
    FAULTY,
    GAP,
    LATENCY,
    LATENCY_UNIT_NS,
    OVERALL,
    RECOVERY,
    MeasurementContext,
    context_of,
)
from squall.checkers.nemesis_log import windows
from squall.checkers.nightly.statistics import bucket_of

Row = dict[str, Any]


def run_row(run_dir: Path) -> Row:
    """Return the row that the store of nights has for a run."""
    history, faults = read_lines(run_dir)
    context = context_of(history, faults)
    found = find_all(history)
    lost = [each for each in found if each.anomaly in LOSS]
    acknowledged = _acknowledged(history)
    tails = _tails(history, acknowledged, lost)
    changes = _leader_changes(history)
    return {
        "acknowledged": len(acknowledged),
        "lost": len(lost),
        "lost_unacknowledged": sum((each.part, each.val) not in acknowledged for each in lost),
        "duplicated": len({(each.part, each.val) for each in found if each.anomaly == "duplicate"}),
        "lost_tails": len(tails),
        "lost_tail_records": max((len(tail) for tail in tails), default=0),
        "lost_tail_ms": max(((tail[-1] - tail[0]) / 1e6 for tail in tails), default=0.0),
        "leader_changes": changes,
        **_measured(history, context),
    }


def histogram(run_dir: Path) -> dict[tuple[bool, int], int]:
    """Count the load's acknowledged sends, by (whether a fault was active, latency bucket)."""
    history, faults = read_lines(run_dir)
    context = context_of(history, faults)
    found: dict[tuple[bool, int], int] = {}
    for send in history.records.rows():
        if send.kind == SEND and send.st == OK and producer_of(send.val) not in context.afterwards:
            hit = any(send.t0 <= ended and send.t1 >= began for began, ended in windows(faults))
            key = hit, bucket_of((send.t1 - send.t0) // LATENCY_UNIT_NS)
            found[key] = found.get(key, 0) + 1
    return found


def fault_rows(run_dir: Path) -> dict[int, tuple[float | None, float | None]]:
    """Return (time to recovery, longest gap between acknowledgements) in ms for each fault."""
    history, faults = read_lines(run_dir)
    measures = measure(history, context_of(history, faults))
    rows: dict[int, tuple[float | None, float | None]] = {}
    for fault in faults:
        took = [each.numbers[0] for each in measures if each.name == RECOVERY and each.a == fault.id]
        gaps = [each.numbers[0] / 1e6 for each in measures if each.name == FAULT_GAP and each.a == fault.id]
        recovery = None if not took or min(took) < 0 else max(took) / 1e6
        rows[fault.id] = recovery, max(gaps, default=None)
    return rows


def cell(rows: Sequence[Row]) -> Row:
    """Return the row of the durability table for runs of one configuration; only runs with a verdict count."""

    def told(name: str) -> list[Any]:
        return [row[name] for row in rows if row[name] is not None]

    sums = ("acknowledged", "lost", "lost_unacknowledged", "duplicated", "lost_tails", "leader_changes", "unrecovered")
    most = ("lost_tail_records", "lost_tail_ms", "unavailable_ms", "recovery_ms")
    return {
        "runs": len(rows),
        "losing": sum(row["lost"] > 0 for row in rows),
        **{name: sum(told(name)) for name in sums},
        **{name: max(told(name), default=None) for name in most},
    }


def _acknowledged(history: History) -> dict[tuple[int, int], int]:
    """Return when each (partition, value) was acknowledged. A record of a transaction counts only if its commit was
    acknowledged, too.
    """
    committed = {txn.op: txn.committed for txn in history.txns.rows()}
    inside = {(each.part, each.val): committed[each.txn] for each in history.members.rows() if each.kind == SEND}
    return {
        (send.part, send.val): send.t1
        for send in history.records.rows()
        if send.kind == SEND and send.st == OK and inside.get((send.part, send.val), True)
    }


def _tails(history: History, acknowledged: dict[tuple[int, int], int], lost: Iterable[Witness]) -> list[list[int]]:
    """Group the lost records of each partition into tails, as docs/durability.md defines them. Returns the records'
    acknowledgement times for each tail.
    """
    gone = {(each.part, each.val) for each in lost}
    places: dict[tuple[int, int], int] = {}
    reads: dict[tuple[int, int], int] = {}
    first: dict[tuple[int, int], int] = {}
    for record in history.records.rows():
        key = record.part, record.val
        if record.kind == SEND:
            places[key] = max(places.get(key, -1), record.off)
        elif record.kind == 1:
            reads[key] = max(reads.get(key, -1), record.off)
            first[key] = min(first.get(key, record.t1), record.t1)
    tails: list[list[int]] = []
    for part in {part for part, _ in gone}:
        keys = [key for key in dict.fromkeys([*acknowledged, *sorted(gone)]) if key[0] == part]
        events = []
        for key in keys:
            off = places[key] if places.get(key, -1) >= 0 else reads.get(key, -1)
            events.append((acknowledged.get(key, first.get(key, -1)), off, key[1], key in gone))
        before: tuple[int, int] | None = None
        kept: tuple[int, int] | None = None
        for t, off, _, is_lost in sorted(events):
            if not is_lost:
                kept = t, off
                continue
            if before is None or (kept is not None and _parted(before, kept, off)):
                tails.append([])
            tails[-1].append(t)
            before = t, off
    return tails


def _parted(before: tuple[int, int], kept: tuple[int, int], off: int) -> bool:
    """Return whether a surviving record separates two lost ones: it was acknowledged between them, and is between them
    in the log. The pairs are (acknowledgement time, offset).
    """
    if kept[0] < before[0]:
        return False
    if off < 0 or before[1] < 0:
        return True
    return kept[1] < off and (kept[1] > before[1] or off <= before[1])


def _leader_changes(history: History) -> int | None:
    epochs: dict[int, list[int]] = {}
    for told in history.told.rows():
        if told.epoch >= 0:
            epochs.setdefault(told.part, []).append(told.epoch)
    return sum(max(each) - min(each) for each in epochs.values()) if epochs else None


def _measured(history: History, context: MeasurementContext) -> Row:
    measures = measure(history, context)
    gaps = {each.a: each.numbers[0] / 1e6 for each in measures if each.name == GAP}
    latency = {each.a: each.numbers for each in measures if each.name == LATENCY}
    recovery: dict[int, list[float]] = {}
    for each in measures:
        if each.name == RECOVERY:
            recovery.setdefault(each.a, []).append(each.numbers[0])
    took = [max(of) / 1e6 for of in recovery.values() if max(of) >= 0]
    row: Row = {
        "unavailable_ms": max((ms for part, ms in gaps.items() if part != OVERALL), default=None),
        "unavailable_all_ms": gaps.get(OVERALL),
        "recovery_ms": max(took, default=None),
        "unrecovered": sum(min(of) < 0 for of in recovery.values()),
    }
    for flag, suffix in ((CALM, "_ms"), (FAULTY, "_faulty_ms")):
        for place, name in ((1, "p50"), (2, "p99")):
            row[name + suffix] = latency[flag][place] * LATENCY_UNIT_NS / 1e6 if flag in latency else None
    return row
