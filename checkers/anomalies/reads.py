"""What each reader got, each record with the one before it, and the version order that everybody together saw."""

from __future__ import annotations

from checkers.findings import Witness
from checkers.history.tables import POLL, SEND, History, Row


def consecutive_reads(history: History) -> list[tuple[Row, Row]]:
    """(before, after) for each two records that one reader got of one partition, nothing between having moved it."""
    last: dict[tuple[int, int, int], Row] = {}
    pairs: list[tuple[Row, Row]] = []
    reads = (record for record in history.records.rows() if record.kind == POLL)
    for record in sorted(reads, key=lambda record: (record.op, record.idx)):
        reader = (record.proc, record.part, record.seg)
        if reader in last:
            pairs.append((last[reader], record))
        last[reader] = record
    return pairs


def version_orders(history: History) -> dict[int, dict[int, int]]:
    """Partition -> offset -> its dense index, over offsets of all polls and of acknowledged sends."""
    offsets: dict[int, set[int]] = {}
    for record in history.records.rows():
        if record.kind in (SEND, POLL) and record.off >= 0:
            offsets.setdefault(record.part, set()).add(record.off)
    return {part: {off: index for index, off in enumerate(sorted(seen))} for part, seen in offsets.items()}


def witness(name: str, before: Row, after: Row) -> Witness:
    """That `after` does not follow `before`; "int-" goes before the name where one poll returned both."""
    inside = "int-" if before.op == after.op else ""
    return Witness(f"{inside}{name}", "", after.part, after.off, after.val, after.op, after.proc, before.off)
