"""Finds the anomaly revoked-read with Spark: a member of a group got, or processed, a record of a partition that it had
released. `squall.checkers.anomalies.revoked_read` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.group_tables import REVOKED
from squall.spark_analysis.query import WitnessQuery, WitnessRule

SQL = f"""
with held as (select *, lead(t0) over (partition by proc, part order by t0) next from holds)
select 'revoked-read' anomaly, '' evidence, r.part, r.off, r.val, r.op, bigint(r.proc) proc, -1L other
from records r join held h on h.proc = r.proc and h.part = r.part
where r.kind = 1 and r.final = 0 and h.how = {REVOKED} and h.t1 < r.t1 and coalesce(r.t1 < h.next, true)
"""


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.revoked_read`; empty if the history cannot show the
    anomaly.
    """
    return [WitnessQuery(SQL, ("holds", "records"))] if history.holds else []
