"""Computes the measures of transactions for the reference engine, by simple algorithms. `squall.checkers.metrics`
defines the measures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from squall.checkers.anomalies.transactions import transactions_of
from squall.checkers.history.tables import ABORT, COMMIT, FAIL, INFO, NOT_ENDED, OK, POLL, History, Txn
from squall.checkers.metrics import (
    ABORTED_DATA,
    COMMIT_LATENCY,
    EARLY_DATA,
    LATENCY_UNIT_NS,
    NEVER_ENDED_DATA,
    TRANSACTIONS,
    UNCOMMITTED,
    UNCOMMITTED_OFFSETS,
    MeasurementRow,
    TxnOutcome,
    spread,
)


def measure(history: History) -> Iterator[MeasurementRow]:
    """Yield how transactions ended, how long commits took, and how many uncommitted records read_uncommitted readers
    got.
    """
    txns: list[Txn] = list(history.txns.rows())
    for end, count in Counter(map(end_of, txns)).items():
        yield MeasurementRow(TRANSACTIONS, end, 0, (count,))
    commits = sorted((txn.t1 - txn.te) // LATENCY_UNIT_NS for txn in txns if txn.committed)
    if commits:
        yield MeasurementRow(COMMIT_LATENCY, 0, 0, spread(commits))
    yield from _uncommitted(history)


def end_of(txn: Txn) -> TxnOutcome:
    """Return how a transaction ended, as its client saw it."""
    if txn.st == OK:
        return TxnOutcome.COMMITTED if txn.how == COMMIT else TxnOutcome.ABORTED
    if txn.st == FAIL:
        outlived = txn.t1 - txn.t0 >= txn.timeout_ms * 1_000_000
        return TxnOutcome.TIMED_OUT if outlived else TxnOutcome.FAILED
    assert txn.st == INFO, txn
    return TxnOutcome.LEFT if txn.how == NOT_ENDED else TxnOutcome.UNKNOWN


def _uncommitted(history: History) -> Iterator[MeasurementRow]:
    writers = transactions_of(history).of_value
    reads: Counter[tuple[int, int]] = Counter()
    places: dict[tuple[int, int], set[tuple[int, int, int]]] = {}
    of_txns: dict[tuple[int, int], set[int]] = {}
    for record in history.records.rows():
        txn = writers.get(record.val) if record.kind == POLL and record.iso == 0 else None
        which = _why_uncommitted(txn, record.t1) if txn is not None else None
        if txn is not None and which is not None:
            key = which, int(record.final > 0)
            reads[key] += 1
            places.setdefault(key, set()).add((txn.op, record.part, record.off))
            of_txns.setdefault(key, set()).add(txn.op)
    for (which, final), count in reads.items():
        yield MeasurementRow(UNCOMMITTED, which, final, (len(of_txns[which, final]), count))
        yield MeasurementRow(UNCOMMITTED_OFFSETS, which, final, (len(places[which, final]),))


def _why_uncommitted(txn: Txn, read_ns: int) -> int | None:
    """Return why data of this transaction was uncommitted when a reader got it at `read_ns`: ABORTED_DATA,
    NEVER_ENDED_DATA or EARLY_DATA. Return None if the transaction was committed by then, or may have been.
    """
    if txn.never_commits:
        return ABORTED_DATA if txn.how == ABORT or txn.st == FAIL else NEVER_ENDED_DATA
    return EARLY_DATA if read_ns <= txn.te else None
