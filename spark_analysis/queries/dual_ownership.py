"""dual-ownership."""

from __future__ import annotations

from collections.abc import Sequence

from checkers.history.conversion import Conversion
from checkers.history.group_tables import DELETED
from checkers.history.tables import FAIL
from spark_analysis.query import Rule, Select

SQL = f"""
with named as (select proc, coalesce(get_json_object(settings, '$.instance'), '') instance from processes),
own as (
  select h.*, n.instance from holds h join partitions p on p.part = h.part join named n on n.proc = h.proc
  where not p.deleted),
gone as (select `group` grp, t0, t1 from commits where part < 0 and off = {DELETED} and st <> {FAIL})
select 'dual-ownership' anomaly, '' evidence, b.part, b.pos off, -1L val, -1L op, bigint(b.proc) proc,
       bigint(a.proc) other
from own a join own b on a.`group` = b.`group` and a.part = b.part and a.proc <> b.proc
where (a.t0 < b.t0 or (a.t0 = b.t0 and a.proc < b.proc)) and (
  (a.proved >= b.t0 and b.proved >= b.t0)
  or (a.gen between 0 and b.last_gen and b.gen between 0 and a.last_gen and (a.t1 < 0 or a.t1 > b.t0)
      and (a.instance <> b.instance or a.instance = '')
      and not exists (
        select 1 from gone g where g.grp = b.`group` and g.t0 <= b.t0 and (g.t1 < 0 or g.t1 >= a.t0))))
"""


def query(history: Conversion) -> Sequence[Rule | Select]:
    """The query of `checkers.anomalies.dual_ownership`. Which requests prove ownership is decided when the history is
    converted (`Hold.proved`).
    """
    return [Select(SQL, ("holds", "partitions", "processes", "commits"))] if history.holds else []
