"""Finds the anomaly stuck-group with Spark: a group has live members but reads nothing, although all faults are over.
`squall.checkers.anomalies.stuck_group` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.anomalies.stuck_group import REBALANCES, SESSIONS
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.values import AFTER_HEALING
from squall.spark_analysis.query import WitnessQuery, WitnessRule

SQL = f"""
with sent as (
  select r.part, min(struct(r.op, r.off, r.val, r.t1)) first from records r join processes p on p.proc = r.proc
  where r.kind = 0 and r.st = 0 and r.off >= 0 and contains(p.settings, '"{AFTER_HEALING}"') group by r.part),
members as (
  select h.`group` grp, h.proc, min(h.t0) t0, max(p.last_t) last_t,
         coalesce(max(try_cast(get_json_object(p.settings, '$.session_timeout_ms') as bigint)), 0L) session_ms,
         coalesce(max(try_cast(get_json_object(p.settings, '$.max_poll_interval_ms') as bigint)), 0L) polls_ms
  from holds h join processes p on p.proc = h.proc group by h.`group`, h.proc),
limits as (
  select grp, 1000000L * max(
    if(session_ms > 0, greatest({SESSIONS} * session_ms, {REBALANCES} * (session_ms + polls_ms)), 0L)) ns
  from members group by grp),
wanted as (
  select l.grp, s.part, s.first.*, l.ns, s.first.t1 + l.ns until
  from (select distinct `group` grp, part from holds) h join limits l on l.grp = h.grp join sent s on s.part = h.part
  join partitions p on p.part = h.part
  where l.ns > 0 and s.first.off >= p.judged_from)
select 'stuck-group' anomaly, '' evidence, part, off, val, op, -1L proc, ns other
from wanted w
where exists (select 1 from members m where m.grp = w.grp and m.t0 <= w.t1 and m.last_t >= w.until)
  and not exists (
    select 1 from records r join members m on m.proc = r.proc
    where m.grp = w.grp and r.kind = 1 and r.part = w.part and r.off >= w.off and r.t1 <= w.until)
"""


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.stuck_group`; empty if the history cannot show the anomaly.
    """
    return [WitnessQuery(SQL, ("records", "processes", "holds", "partitions"))] if history.holds else []
