"""Collects what each reader got, each record with the one before it, and the version order that all readers together
saw.
"""

from __future__ import annotations

from squall.checkers.anomalies.transactions import ended_late, transactions_of
from squall.checkers.findings import Witness
from squall.checkers.history.tables import ABORT, EMPTY_POLL, POLL, SEND, History, RecordRow


def consecutive_reads(history: History) -> list[tuple[RecordRow, RecordRow]]:
    """(before, after) for each two records that one reader got of one partition, nothing between having moved it."""
    last: dict[tuple[int, int, int], RecordRow] = {}
    pairs: list[tuple[RecordRow, RecordRow]] = []
    reads = (record for record in history.records.rows() if record.kind == POLL)
    for record in sorted(reads, key=lambda record: (record.op, record.idx)):
        reader = (record.proc, record.part, record.seg)
        if reader in last:
            pairs.append((last[reader], record))
        last[reader] = record
    return pairs


def passages(history: History) -> list[RecordRow]:
    """Return every stretch over which a poll moved its reader without a record: from `before` to `off`."""
    return [record for record in history.records.rows() if record.kind == EMPTY_POLL and record.before >= 0]


Order = dict[int, dict[int, int]]
"""Partition -> offset -> its dense index."""


def version_orders(history: History) -> tuple[Order, Order]:
    """The order over offsets of polls and acknowledged sends, for read_uncommitted readers and for read_committed ones.

    A read_committed reader need not be given a record of a transaction whose commit was not acknowledged, or which a
    late EndTxn may have aborted, unless some reader at its level got it.
    """
    transactions, late = transactions_of(history).of_value, ended_late(history)
    offsets: tuple[dict[int, set[int]], ...] = ({}, {})
    for record in history.records.rows():
        if record.kind not in (SEND, POLL) or record.off < 0:
            continue
        txn = transactions.get(record.val)
        visible = txn is None or (txn.committed and ABORT not in late[txn.op])
        committed = visible or record.iso == 1
        for seen in offsets if committed else offsets[:1]:
            seen.setdefault(record.part, set()).add(record.off)
    uncommitted, committed_only = (
        {part: {off: index for index, off in enumerate(sorted(seen))} for part, seen in level.items()}
        for level in offsets
    )
    return uncommitted, committed_only


def witness(name: str, before: RecordRow, after: RecordRow) -> Witness:
    """That `after` does not follow `before`; "int-" goes before the name where one poll returned both."""
    inside = "int-" if before.op == after.op else ""
    return Witness(f"{inside}{name}", "", after.part, after.off, after.val, after.op, after.proc, before.off)
