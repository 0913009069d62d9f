"""Finds uncommitted-offset: a group's position was set by a transaction that did not commit."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessQuery, has_offset_fetches, has_transactions
from squall.checkers.anomalies.group_positions import positions_of
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
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


SQL = """
with explained as (
  select f.op, f.part, f.off, c.txn, c.proc, c.late_commit or c.late = 1 late_commit, c.off = f.off as same, c.st,
         c.txn >= 0 and (c.never_commits or c.te < 0 or c.te > f.t1) uncommitted
  from fetches f join partitions p on p.part = f.part
  join group_commits c on c.grp = f.`group` and c.part = f.part and c.t0 <= f.t1 and c.off in (f.off, -1)
  where f.off >= 0 and not p.deleted)
select 'uncommitted-offset' anomaly, if(late, 'late end', '') evidence, part, off, -1L val, first.txn op,
       bigint(first.proc) proc, op other
from (
  select op, part, off, min(if(same and uncommitted, struct(txn, proc), null)) first,
         max(same and uncommitted and late_commit) late, max(not uncommitted and st <> 1) right
  from explained group by op, part, off)
where first is not null and not right
"""


def _queries(history: ConversionResult) -> Queries:
    if not has_offset_fetches(history) or not has_transactions(history):
        return []
    return [WitnessQuery(SQL, ("group_commits", "fetches", "partitions"))]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
