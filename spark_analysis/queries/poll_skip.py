"""Finds the anomalies poll-skip and (inside one poll) int-poll-skip with Spark: a reader did not get records that are
in the log. `squall.checkers.anomalies.poll_skip` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule, has_transactions

SQL = """
with order_of as (
  select part, off, lead(off) over (partition by part order by off) next
  from (select distinct part, off from places where off >= 0))
select concat(if(inside = 1, 'int-', ''), 'poll-skip') anomaly, '' evidence, o.part, o.off, val, op,
       bigint(proc) proc, before other
from (select * from records where kind = 1 and before >= 0 and off > before + 1) o
join order_of n on n.part = o.part and n.off = o.before join partitions p on p.part = o.part
where next < o.off and not compacted
"""
"""Selects the witnesses among returned records. The converter stores for each record the offset that its reader got
before it (`before`), so no sort of all reads is needed. Only a record that does not follow `before` directly is
compared with the known offsets of its partition (`order_of`).
"""


WITH_TRANSACTIONS = """
with at as (
  select part, off, 0 iso from places where off >= 0
  union
  select p.part, p.off, 1 iso from places p left join txn_values t on t.val = p.val
  where p.off >= 0 and (t.val is null or (t.committed and not t.late_abort))
  union
  select part, off, 1 iso from records where kind = 1 and iso = 1),
order_of as (select part, off, iso, lead(off) over (partition by part, iso order by off) next from at)
select concat(if(inside = 1, 'int-', ''), 'poll-skip') anomaly, '' evidence, o.part, o.off, val, op,
       bigint(proc) proc, before other
from (select * from records where kind = 1 and before >= 0 and off > before + 1) o
join order_of n on n.part = o.part and n.off = o.before and n.iso = o.iso join partitions p on p.part = o.part
where next < o.off and not compacted
"""
"""Selects the witnesses among returned records in a history with transactions, while `SQL` is for a history without. A
read_committed reader may skip records of transactions whose commit was not acknowledged, or which a late EndTxn may
have aborted.
"""


PASSAGES = """
union all
select 'poll-skip' anomaly, '' evidence, e.part, e.off, -1L val, op, bigint(proc) proc, before other
from (
  select r.part, r.off, r.iso, r.op, r.idx, r.proc, r.before,
         explode(sequence(r.before, least(r.off - 1, p.seen))) passed
  from records r join partitions p on p.part = r.part
  where r.kind = 2 and r.before >= 0 and r.before <= p.seen and not p.compacted) e
join order_of n on n.part = e.part and n.off = e.passed{same_level}
group by e.part, e.off, op, e.idx, proc, before
"""
"""Is appended to SQL or WITH_TRANSACTIONS. Selects polls that moved the reader past records which they did not return:
before the first returned record, after the last one, or in a poll that returned none. Records above the highest offset
that any reader saw do not count. The placeholder `same_level` is a condition on isolation levels, which only
WITH_TRANSACTIONS needs.
"""


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.poll_skip`; empty if the history cannot show the anomaly.
    """
    if not history.holes:
        return []
    if has_transactions(history):
        sql = WITH_TRANSACTIONS + PASSAGES.format(same_level=" and n.iso = e.iso")
        return [WitnessQuery(sql, ("records", "places", "partitions", "txn_values"))]
    return [WitnessQuery(SQL + PASSAGES.format(same_level=""), ("records", "places", "partitions"))]
