"""Collects the records that each reader got, each with the record that the reader got before, and the order of all
offsets that polls and acknowledgements show.
"""

from __future__ import annotations

from squall.checkers.anomalies.transactions import ended_late, transactions_of
from squall.checkers.findings import Witness
from squall.checkers.history.tables import ABORT, EMPTY_POLL, POLL, SEND, History, RecordRow


def consecutive_reads(history: History) -> list[tuple[RecordRow, RecordRow]]:
    """Return (before, after) for each two records that a reader got one after the other in a partition, if nothing
    moved its position between them.
    """
    # Not from `RecordRow.before`, which Spark reads: so a mistake of the converter shows when both are compared.
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
    """Return an EMPTY_POLL row for each stretch of offsets over which a poll moved its reader without returning a
    record. The stretch begins at the row's `before` and ends at its `off`.
    """
    return [record for record in history.records.rows() if record.kind == EMPTY_POLL and record.before >= 0]


Order = dict[int, dict[int, int]]
"""Maps each partition to offset -> the offset's index among all known offsets of the partition."""


def version_orders(history: History) -> tuple[Order, Order]:
    """Return the known offsets of each partition in order, once for read_uncommitted readers and once for
    read_committed readers. Polls and acknowledged sends show the offsets.

    A read_committed reader need not get a record of a transaction whose commit was not acknowledged, or that a late
    EndTxn may have aborted. So the second order has such records only if some read_committed reader got them.
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
    """Return a witness that a reader wrongly got `after` as the next record after `before`. `name` is the anomaly, such
    as "poll-skip"; the prefix "int-" is added if one poll returned both records.
    """
    inside = "int-" if before.op == after.op else ""
    return Witness(f"{inside}{name}", "", after.part, after.off, after.val, after.op, after.proc, before.off)
