"""send-reorder."""

from __future__ import annotations

from collections.abc import Sequence

from checkers.history.conversion import Conversion
from spark_analysis.query import Rule, Select

SQL = """
select 'send-reorder' anomaly, elt(1 + least(level, level_before), 'acks', 'reads', 'final') evidence, part, off, val,
       op, producer proc, before other
from (
  select part, val, op, producer, off, level, lag(off) over handed before, lag(level) over handed level_before,
         judged_from, coalesce(read_max, -1L) last
  from (
    select *, if(retired, acked_at, coalesce(final_min, read_min, acked_at)) off,
           case when retired then acked_read when final_min is not null then 2 when read_min is not null then 1 else 0
           end level
    from (
      select *, acked_at >= 0 and acked_at < judged_from and final_min is not null and acked_final = 0 retired
      from judged where sent = 1 and st <> 1))
  where off >= 0 window handed as (partition by part, producer order by op))
where off < before and not (judged_from > 0 and last > before)
"""


def query(_: Conversion) -> Sequence[Rule | Select]:
    """The query of `checkers.anomalies.send_reorder`."""
    return [Select(SQL, ("judged",))]
