"""Finds the anomaly send-reorder with Spark: a record is behind a record that its producer sent later to the same
partition. `squall.checkers.anomalies.send_reorder` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule

SQL = """
with handed as (
  select part, val, op, producer, off, level,
         if(judged_from > 0, greatest(off + 1, coalesce(read_max, -1L)), off + 1) ahead_of
  from (
    select *, if(retired, acked_at, coalesce(final_min, read_min, acked_at)) off,
           case when retired then acked_read when final_min is not null then 2 when read_min is not null then 1 else 0
           end level
    from (
      select *, acked_at >= 0 and acked_at < judged_from and final_min is not null and acked_final = 0 retired
      from judged where sent = 1 and st <> 1))
  where off >= 0),
compared as (
  select *, max(off) over (partition by part, producer order by op rows between unbounded preceding and 1 preceding)
            highest,
         min(ahead_of) over later least_acked, min(if(level > 0, ahead_of, null)) over later least_read,
         min(if(level > 1, ahead_of, null)) over later least_final
  from handed
  window later as (partition by part, producer order by op desc rows between unbounded preceding and 1 preceding)),
counted as (
  select *, count_if(ahead_of <= highest) over (partition by part, producer) overtook,
         case when level > 1 and least_final <= off then 'final' when level > 0 and least_read <= off then 'reads'
              when least_acked <= off then 'acks' end evidence
  from compared)
select 'send-reorder' anomaly, evidence, part, off, val, op, producer proc, overtook other
from counted where evidence is not null
"""
"""Selects each record whose offset is above that of a record which the same producer sent later. The window `later`
sorts a producer's sends in descending order, so that all later sends are preceding rows: Spark needs quadratic time for
a frame of all following rows.
"""


def query(_: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.send_reorder`."""
    return [WitnessQuery(SQL, ("judged",))]
