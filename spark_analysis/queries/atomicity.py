"""Finds the anomalies torn-txn and lost-txn with Spark: only a part of a transaction, or nothing of it, is visible in
the final reads. `squall.checkers.anomalies.atomicity` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule, has_transactions

SQL = """
with sent_in as (
  select t.txn, t.txn_proc, t.txn_t1, t.committed, t.late_abort,
         t.late_abort or t.late_commit late, t.committed or r.txn is not null proven,
         s.part, s.val, s.acked_at, c.val is not null visible
  from standing s join txn_values t on t.part = s.part and t.val = s.val
  left join (select distinct txn from committed_reads) r on r.txn = t.txn
  left join (select part, val from committed_reads where final) c on c.part = s.part and c.val = s.val
  where s.sent = 1 and s.st = 0 and not t.never_commits),
seen_by as (
  select m.txn, m.part, m.val,
         max(coalesce(f.whole = 1 and f.start <= m.acked_at and m.acked_at < f.reached, false)) passed,
         max(coalesce(f.whole = 1 and f.end >= 0 and f.end <= f.reached and f.start <= greatest(f.log_start, 0)
                      and m.committed and m.txn_t1 <= f.t0, false)) read_after
  from sent_in m left join (select * from finals where iso = 1) f on f.part = m.part
  where not m.visible group by m.txn, m.part, m.val),
damaged as (select distinct part, off from places where val < 0 and is_final = 1),
missing as (
  select m.*
  from sent_in m join seen_by b on b.txn = m.txn and b.part = m.part and b.val = m.val
  join partitions p on p.part = m.part
  left anti join damaged d on d.part = m.part and d.off = m.acked_at
  where not m.visible and (passed or read_after) and not p.compacted
    and not (p.judged_from > 0 and m.acked_at < p.judged_from)),
visible as (select txn, count(*) records from sent_in where visible group by txn)
select 'torn-txn' anomaly, if(m.late, 'late end', '') evidence,
       m.part, m.acked_at off, m.val, m.txn op, bigint(m.txn_proc) proc, records other
from missing m join visible v on v.txn = m.txn
union all
select 'lost-txn' anomaly, if(late_abort, 'late end', '') evidence,
       first.part, first.acked_at off, first.val, txn op, bigint(txn_proc) proc, other
from (select txn, txn_proc, late_abort, min(struct(val, part, acked_at)) first, count(*) other
      from missing m left anti join visible v on v.txn = m.txn
      where proven group by txn, txn_proc, late_abort)
"""
"""Selects the witnesses. A record of a transaction counts as missing only if the final read_committed reads did not
return it although one of them should have. Such a read went past the record's offset (`passed`), or it covers the whole
log and began after the transaction's commit was acknowledged (`read_after`).
"""


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.atomicity`; empty if the history cannot show the anomaly.
    """
    if not has_transactions(history):
        return []
    views = ("standing", "txn_values", "committed_reads", "finals", "places", "partitions")
    return [WitnessQuery(SQL, views)]
