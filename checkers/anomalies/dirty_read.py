"""Finds dirty-read: a read_committed reader got a record before anybody requested the commit of its transaction."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import JEPSEN, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessRule, has_transactions
from squall.checkers.anomalies.transactions import committed_reads, ended_late
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import COMMIT, LATE_END

ANOMALIES = (
    AnomalyDefinition(
        "dirty-read",
        AnomalyFamily.TRANSACTIONS,
        "a read_committed poll returned a value before, or just when, the commit of its transaction was asked for",
        source=f"{JEPSEN}; KIP-98, read_committed ends at the last stable offset",
        jepsen="precommitted-read",
        other="the first operation that returned it",
        needs=(HistoryNeed.TRANSACTIONS, HistoryNeed.COMMITTED_READS),
        meaning="records were read as committed before their commit was asked for",
        meaning_of_one="record was read as committed before its commit was asked for",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each value that a poll returned no later than the client requested the commit of its
    transaction.

    One clock times both events, and the request leaves the client after it was recorded. So a poll that returned at the
    same instant cannot have seen the commit's markers.
    """
    late = seen.view(ended_late)
    for got in seen.view(committed_reads):
        if not got.txn.never_commits and got.first <= got.txn.te:
            evidence = LATE_END if COMMIT in late[got.txn.op] else ""
            yield Witness("dirty-read", evidence, got.part, got.off, got.val, got.txn.op, got.txn.proc, got.op)


def _queries(history: ConversionResult) -> Queries:
    if not has_transactions(history):
        return []
    return [
        WitnessRule(
            "committed_reads",
            "not never_commits and first <= te",
            "'dirty-read'",
            evidence=f"if(late_commit, '{LATE_END}', '')",
            off="off",
            val="val",
            op="txn",
            proc="txn_proc",
            other="op",
        )
    ]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
