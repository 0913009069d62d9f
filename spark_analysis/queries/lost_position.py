"""Finds the anomaly lost-position with Spark: a coordinator reports a wrong committed position of a group. For example,
the position is lower than an earlier one, although no client committed a lower one.
`squall.checkers.anomalies.lost_position` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.anomalies.lost_position import LEAST_RETENTION_NS, METADATA
from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule, has_offset_fetches

SQL = f"""
with explaining as (
  select op, grp, part, off, st, t0, txn, te, never_commits, late_commit, done_by, meta from group_commits
  union all
  select c.op, c.grp, n.part, c.off, c.st, c.t0, c.txn, c.te, c.never_commits, c.late_commit, c.done_by, c.meta
  from group_commits c join partitions g on g.part = c.part
  join partitions n on n.topic = g.topic and n.number = g.number and n.part > g.part
  where g.deleted and c.done_by < 0),
known as (
  select grp, part, off, t0, since, txn, late_abort, proc from group_commits where since >= 0
  union all
  select `group`, part, off, t0, t1, -1L, false, proc from fetches where off >= 0),
contradicted as (
  select f.op, k.proc, f.`group` grp, f.part, f.off, f.t1, k.t0 known_t0, k.off known, k.late_abort
  from fetches f join known k on k.grp = f.`group` and k.part = f.part
  join partitions p on p.part = f.part
  where k.since <= f.t0 and k.off > f.off and (f.stable = 1 or k.txn < 0) and not p.deleted
    and (f.off >= 0 or f.t1 - k.t0 < {LEAST_RETENTION_NS}L)),
lost as (
  select * from contradicted c
  where not exists (
    select 1 from explaining d
    where d.grp = c.grp and d.part = c.part and d.st <> 1 and d.t0 <= c.t1
      and (d.off in (c.off, -1) or c.off < 0 and d.off = -2)
      and (d.late_commit or not (d.never_commits or (d.txn >= 0 and (d.te < 0 or d.te > c.t1))))
      and (d.done_by < 0 or d.done_by >= c.known_t0))),
deleted as (
  select f.op, f.`group` grp, f.part, f.off, f.t1, max(struct(d.t0, d.proc)) last
  from fetches f join group_commits d on d.grp = f.`group` and d.part = f.part
  join partitions p on p.part = f.part
  where d.off = -2 and d.st = 0 and d.done_by between 0 and f.t0 and f.off >= 0 and not p.deleted
  group by f.op, f.`group`, f.part, f.off, f.t1),
back as (
  select * from deleted c
  where not exists (
    select 1 from group_commits d
    where d.grp = c.grp and d.part = c.part and d.st <> 1 and d.t0 <= c.t1 and d.off in (c.off, -1)
      and (d.late_commit or not (d.never_commits or (d.txn >= 0 and (d.te < 0 or d.te > c.t1))))
      and (d.late_commit or d.done_by < 0 or d.done_by >= c.last.t0))),
invented as (
  select f.op, f.proc, f.part, f.off from fetches f join partitions p on p.part = f.part
  where f.off >= 0 and not p.deleted and not exists (
    select 1 from explaining d
    where d.grp = f.`group` and d.part = f.part and d.t0 <= f.t1 and d.off in (f.off, -1)
      and (d.st <> 1 or d.off = f.off and d.txn >= 0 and (d.never_commits or d.te < 0 or d.te > f.t1)))),
stripped as (
  select f.op, f.proc, f.part, f.off
  from fetches f join partitions p on p.part = f.part
  join explaining d on d.grp = f.`group` and d.part = f.part
  where f.off >= 0 and f.meta >= 0 and not p.deleted and d.st <> 1 and d.t0 <= f.t1 and d.off in (f.off, -1)
    and (d.late_commit or not (d.never_commits or (d.txn >= 0 and (d.te < 0 or d.te > f.t1))))
  group by f.op, f.proc, f.part, f.off, f.meta
  having count_if(d.meta in (-1, f.meta)) = 0)
select 'lost-position' anomaly, if(first.proven, '', 'late end') evidence, part, off, -1L val, op,
       bigint(first.proc) proc, first.known other
from (
  select part, off, op, max(struct(not late_abort as proven, known, proc)) first
  from lost group by part, off, op)
union all
select 'lost-position', '', part, off, -1L, op, bigint(last.proc), -1L
from back b left anti join lost l on l.op = b.op and l.part = b.part
union all
select 'lost-position', '', part, off, -1L, op, bigint(proc), -1L
from invented i
  left anti join lost l on l.op = i.op and l.part = i.part left anti join back b on b.op = i.op and b.part = i.part
union all
select 'lost-position', '{METADATA}', part, off, -1L, op, bigint(proc), -1L
from stripped i
  left anti join lost l on l.op = i.op and l.part = i.part left anti join back b on b.op = i.op and b.part = i.part
"""


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.lost_position`; empty if the history cannot show the
    anomaly.
    """
    return [WitnessQuery(SQL, ("group_commits", "fetches", "partitions"))] if has_offset_fetches(history) else []
