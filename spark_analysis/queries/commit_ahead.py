"""commit-ahead."""

from __future__ import annotations

from collections.abc import Sequence

from checkers.anomalies.commit_ahead import OWN, PROGRAM
from checkers.history.conversion import Conversion
from checkers.history.group_tables import CRASHED
from spark_analysis.query import Rule, Select

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
  select part, iso, off, max(val) val from records where kind = 1 and final > 0 group by part, iso, off)
select 'commit-ahead' anomaly, '' evidence, part, off, first.val, -1L op, first.proc, first.pos other
from (
  select h.grp, h.part, s.off, min(struct(h.t0, bigint(h.proc) proc, h.pos, s.val)) first
  from resumed h join standing_finally s on s.part = h.part and s.iso = h.iso and s.off >= h.since and s.off < h.pos
  left join got g on g.grp = h.grp and g.part = h.part and g.off = s.off
  where coalesce(g.t1 > h.t0, true)
  group by h.grp, h.part, s.off)
"""


def query(history: Conversion) -> Sequence[Rule | Select]:
    """The query of `checkers.anomalies.commit_ahead`."""
    if not history.holds:
        return []
    return [Select(SQL, ("holds", "group_holds", "group_commits", "records", "processes", "partitions"))]
