"""Finds the anomaly inconsistent-offset with Spark: one offset of a partition had two values.
`squall.checkers.anomalies.inconsistent_offset` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule

# `level` is 0 for an acknowledgement, 1 for a read, 2 for a final read, as in `logs.EVIDENCE`.
SQL = """
select 'inconsistent-offset' anomaly, if(finals > 1, 'final', if(reads > 1, 'reads', 'acks')) evidence,
       part, off, displaced.val val, displaced.op op, shiftright(displaced.val, 40) proc, stands.val other
from (select part, off, sum(is_final) finals, sum(is_read) reads, count(*) n,
             min(struct(is_read + is_final as level, val, coalesce(send_op, read_op) as op)) displaced,
             max(struct(is_read + is_final as level, val)) stands
      from places where off >= 0 and val >= 0 group by part, off having n > 1)
"""


def query(_: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.inconsistent_offset`."""
    return [WitnessQuery(SQL, ("places",))]
