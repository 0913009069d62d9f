"""Finds uncommitted-offset: a group's position was set by a transaction that did not commit."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyCheck, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.group_positions import positions_of
from squall.checkers.findings import Witness
from squall.checkers.history.tables import LATE_END

ANOMALIES = (
    AnomalyDefinition(
        "uncommitted-offset",
        AnomalyFamily.TRANSACTIONS,
        "a coordinator reported a position of a group that only one transaction tried to commit, and that transaction "
        "was aborted, failed, or had not been asked to commit yet",
        source="KIP-98: offsets of a transaction become the group's position only if it commits",
        other="the operation that got the position",
        needs=(HistoryNeed.TRANSACTIONS, HistoryNeed.COMMITS, HistoryNeed.POSITIONS),
        meaning="times a group's position was that of a transaction that did not commit",
        meaning_of_one="time a group's position was that of a transaction that did not commit",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each reported position that was set by a transaction which had not committed when the
    position was reported, and that nothing else explains.
    """
    positions = seen.view(positions_of)
    for place in positions.places:
        for fetch in place.fetches:
            wanted = [commit for commit in place.commits if commit.off == fetch.off >= 0 and commit.t0 <= fetch.t1]
            wrong = [commit for commit in wanted if positions.uncommitted(commit, fetch.t1)]
            # A commit that definitely failed cannot have set the position, in a transaction or outside.
            right = any(
                positions.may_explain(commit, fetch.off, fetch.t1) and not positions.uncommitted(commit, fetch.t1)
                for commit in place.commits
            )
            if wrong and not right:
                first = min(wrong, key=lambda commit: commit.txn)
                # With transactions V1 a late TxnOffsetCommit is applied to the next transaction, as a late EndTxn is.
                late = any(commit.late or positions.late_commit(commit) for commit in wrong)
                evidence = LATE_END if late else ""
                yield Witness(
                    "uncommitted-offset", evidence, place.part, fetch.off, -1, first.txn, first.proc, fetch.op
                )


CHECK = AnomalyCheck(__name__, ANOMALIES, find)
