"""Finds the anomaly eos-loss with Spark: a consume-transform-produce application committed a position after an input,
but no output of the input is visible. `squall.checkers.anomalies.eos_loss` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule

SQL = """
with topics as (select distinct o.`group` grp, p.topic from outputs o join partitions p on p.part = o.part),
judged as (
  select t.grp, min(p.committed_t0) until from topics t join partitions p on p.topic = t.topic
  group by t.grp having not max(p.compacted or p.deletable or p.deleted)),
known as (
  select c.grp, c.part, c.off, c.op, c.proc from group_commits c join judged j on j.grp = c.grp
  where c.since >= 0 and c.since <= j.until
  union all
  select c.grp, c.part, c.off, c.op, c.proc
  from fetches f join judged j on j.grp = f.`group` and f.t1 <= j.until
  join group_commits c on c.grp = f.`group` and c.part = f.part and c.off = f.off and c.t0 <= f.t1 and c.st <> 1
  where f.off >= 0
    and (c.late_commit or c.txn < 0 or not (c.never_commits or c.te < 0 or c.te > f.t1))),
furthest as (select grp, part, max(struct(off, -op, proc)) last from known group by grp, part),
began as (
  select grp, part, max(struct(t0, lowest)) last from group_holds group by grp, part),
inputs as (
  select i.* from (
    select part, off, max(val) val from records
    where kind = 1 and final > 0 and iso = 1 and val >= 0 group by part, off) i
  left anti join twice t on t.val = i.val),
missing as (
  select f.grp, i.part, i.off, i.val, f.last.proc proc, f.last.off position
  from furthest f join began b on b.grp = f.grp and b.part = f.part
  join partitions p on p.part = f.part
  join inputs i on i.part = f.part and i.off >= greatest(b.last.lowest, p.judged_from) and i.off < f.last.off
  left anti join (select * from group_commits where off < 0) r on r.grp = f.grp and r.part = f.part
  where not p.compacted and not p.deleted)
select 'eos-loss' anomaly, if(coalesce(max(t.late_abort), false), 'late end', '') evidence, m.part, m.off, m.val,
       -1L op, bigint(m.proc) proc, m.position other
from missing m left join made o on o.`group` = m.grp and o.src = m.val left join txn_values t on t.val = o.val
group by m.grp, m.part, m.off, m.val, m.proc, m.position
having coalesce(max(o.off), -1L) < 0
"""


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.eos_loss`; empty if the history cannot show the anomaly."""
    if not history.outputs:
        return []
    of_groups = ("outputs", "made", "twice", "group_commits", "group_holds", "fetches")
    return [WitnessQuery(SQL, (*of_groups, "records", "txn_values", "partitions"))]
