"""Finds the anomaly stale-ack with Spark: an acknowledged offset is not above the offsets that were acknowledged
before. `squall.checkers.anomalies.stale_ack` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule

SQL = """
select 'stale-ack' anomaly, if(final, 'final', 'acks') evidence, part, acked_at off, val, op,
       if(final or acked_final = 0, producer, -1L) proc, if(final, standing_highest, highest) other
from (
  select *, acked_final = 1 and acked_at <= coalesce(standing_highest, -1L) final
  from (
    select *, max(if(is_ack = 1, acked_at, null)) over earlier highest,
           max(if(is_ack = 1 and acked_final = 1, acked_at, null)) over earlier standing_highest
    from (
      select part, val, op, producer, acked_at, acked_final, inline(array(
               named_struct('t', t0, 'is_ack', 0), named_struct('t', t1, 'is_ack', 1)))
      from standing where sent = 1 and acked and acked_at >= 0)
    window earlier as (partition by part order by t, is_ack rows between unbounded preceding and 1 preceding))
  where is_ack = 0)
where final or acked_at <= coalesce(highest, -1L)
"""
"""Selects the witnesses: sends whose acknowledged offset is not above all offsets that were acknowledged before the
send was invoked. An acknowledgement at the very time of the invocation does not count.
"""


def query(_: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.stale_ack`."""
    return [WitnessQuery(SQL, ("standing",))]
