"""Finds the anomaly uncommitted-offset with Spark: a group's position was set by a transaction that did not commit.
`squall.checkers.anomalies.uncommitted_offset` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule, has_offset_fetches, has_transactions

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


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.uncommitted_offset`; empty if the history cannot show the
    anomaly.
    """
    if not has_offset_fetches(history) or not has_transactions(history):
        return []
    return [WitnessQuery(SQL, ("group_commits", "fetches", "partitions"))]
