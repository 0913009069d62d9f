"""Finds the anomaly commit-ahead with Spark: a group's committed position is beyond a record that none of its members
got. `squall.checkers.anomalies.commit_ahead` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.anomalies.anomaly import OWN, PROGRAM
from squall.checkers.anomalies.commit_ahead import OWN_COMMIT, SKIPPED
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.group_tables import CRASHED
from squall.checkers.history.tables import FAIL
from squall.spark_analysis.query import WitnessQuery, WitnessRule

SQL = f"""
with of_groups as (select distinct proc, `group` grp from holds),
silent as (
  select distinct h.`group` grp, h.part from holds h join processes p on p.proc = h.proc
  where h.how = {CRASHED} and p.client not in ('{OWN}', '{PROGRAM}')
  union
  select grp, part from group_commits where off < 0),
got as (
  select g.grp, r.part, r.off, min(r.t1) t1 from records r join of_groups g on g.proc = r.proc
  where r.kind = 1 and r.final = 0 group by g.grp, r.part, r.off),
resumed as (
  select h.*, if(get_json_object(p.settings, '$.isolation') in ('1', 'read_committed'), 1, 0) iso,
         greatest(h.lowest, q.judged_from) since
  from group_holds h join processes p on p.proc = h.proc join partitions q on q.part = h.part
  left anti join silent s on s.grp = h.grp and s.part = h.part
  where h.begun = 1 and not q.compacted and not q.deleted),
standing_finally as (
  select part, iso, off, max(val) val from records where kind = 1 and final > 0 group by part, iso, off),
passed as (
  select grp, part, off, first.* from (
    select h.grp, h.part, s.off, min(struct(h.t0, bigint(h.proc) proc, h.pos, s.val)) first
    from resumed h join standing_finally s on s.part = h.part and s.iso = h.iso and s.off >= h.since and s.off < h.pos
    left join got g on g.grp = h.grp and g.part = h.part and g.off = s.off
    where coalesce(g.t1 > h.t0, true)
    group by h.grp, h.part, s.off)),
own as (
  select c.op, c.grp, c.part, c.off pos, c.t0, coalesce(max(r.off), -1) reported
  from group_commits c
  left semi join passed w on w.grp = c.grp and w.part = c.part and w.pos = c.off
  join processes p on p.proc = c.proc and p.client = '{PROGRAM}'
  left join records r on r.proc = c.proc and r.part = c.part and r.kind = 1 and r.final = 0 and r.t1 <= c.t0
  where c.st <> {FAIL} and c.txn < 0
  group by c.op, c.grp, c.part, c.off, c.t0),
asked as (
  select w.grp, w.part, w.off, min(o.reported) reported from passed w
  join own o on o.grp = w.grp and o.part = w.part and o.pos = w.pos and o.t0 <= w.t0
  group by w.grp, w.part, w.off)
select 'commit-ahead' anomaly,
       case when a.off is null then '' when a.reported < w.off then '{OWN_COMMIT}' else '{SKIPPED}' end evidence,
       w.part, w.off, w.val, -1L op, w.proc, w.pos other
from passed w left join asked a on a.grp = w.grp and a.part = w.part and a.off = w.off
"""


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.commit_ahead`; empty if the history cannot show the
    anomaly.
    """
    if not history.holds:
        return []
    return [WitnessQuery(SQL, ("holds", "group_holds", "group_commits", "records", "processes", "partitions"))]
