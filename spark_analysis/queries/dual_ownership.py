"""Finds the anomaly dual-ownership with Spark: a group's coordinator treats two members as the owner of one partition.
`squall.checkers.anomalies.dual_ownership` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule

SQL = """
with named as (
  select proc, coalesce(get_json_object(settings, '$.instance'), '') instance,
         1000000L * coalesce(try_cast(get_json_object(settings, '$.session_timeout_ms') as bigint), 0L) session
  from processes),
own as (
  select h.*, n.instance, n.session from holds h join partitions p on p.part = h.part join named n on n.proc = h.proc
  where not p.deleted)
select 'dual-ownership' anomaly, '' evidence, b.part, b.pos off, -1L val, -1L op, bigint(b.proc) proc,
       bigint(a.proc) other
from own a join own b on a.`group` = b.`group` and a.part = b.part and a.proc <> b.proc
where (a.t0 < b.t0 or (a.t0 = b.t0 and a.proc < b.proc)) and (
  (a.proved >= b.t0 and b.proved >= b.t0
    and not (a.t0 < b.t0 and b.t0 <= b.t1 and b.t1 < a.told and a.told <= a.proved))
  or (a.last_gen = b.last_gen and a.last_gen >= 0 and (a.t1 < 0 or a.t1 > b.t0)
      and (a.instance <> b.instance or a.instance = '')
      and abs(a.told - b.told) < if(a.told <= b.told, a.session, b.session)))
"""


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.dual_ownership`; empty if no member owned a partition. The
    conversion of the history decides which requests prove ownership (`PartitionOwnership.proved`).
    """
    return [WitnessQuery(SQL, ("holds", "partitions", "processes"))] if history.holds else []
