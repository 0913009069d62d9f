"""Finds G1a: a read_committed reader got a record of a transaction that did not commit."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import (
    FINAL,
    JEPSEN,
    READS,
    AnomalyDefinition,
    AnomalyFamily,
    HistoryNeed,
    HistoryViews,
)
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessRule, has_transactions
from squall.checkers.anomalies.transactions import committed_reads, ended_late
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import COMMIT, LATE_END

ANOMALIES = (
    AnomalyDefinition(
        "G1a",
        AnomalyFamily.TRANSACTIONS,
        "a read_committed reader got a value of a transaction that was aborted, that definitely failed, or for which "
        "nobody asked for a commit",
        source=f"{JEPSEN}; Adya 1999, G1a (aborted reads); KIP-98, read_committed",
        jepsen="G1a",
        other="the first operation that returned it",
        needs=(HistoryNeed.TRANSACTIONS, HistoryNeed.COMMITTED_READS),
        meaning="records of aborted transactions were read as committed",
        meaning_of_one="record of an aborted transaction was read as committed",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each value that a read_committed reader got although its transaction never committed.

    Transactions whose commit was requested and not answered give no witnesses, because they may have committed.
    """
    late = seen.view(ended_late)
    for got in seen.view(committed_reads):
        if got.txn.never_commits:
            evidence = LATE_END if COMMIT in late[got.txn.op] else FINAL if got.final else READS
            yield Witness("G1a", evidence, got.part, got.off, got.val, got.txn.op, got.txn.proc, got.op)


def _queries(history: ConversionResult) -> Queries:
    if not has_transactions(history):
        return []
    return [
        WitnessRule(
            "committed_reads",
            "never_commits",
            "'G1a'",
            evidence=f"if(late_commit, '{LATE_END}', if(final, 'final', 'reads'))",
            off="off",
            val="val",
            op="txn",
            proc="txn_proc",
            other="op",
        )
    ]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
