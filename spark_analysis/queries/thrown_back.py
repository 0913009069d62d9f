"""Finds the anomaly thrown-back with Spark: a reader learns that records which it has read are no longer in the log.
`squall.checkers.anomalies.thrown_back` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule

SQL = """
select 'thrown-back' anomaly, if(first.kind = 0, 'log truncated', 'offset out of range') evidence, part, position off,
       -1L val, -1L op, bigint(proc) proc, first.end other
from (
  select t.part, t.proc, t.position, min(struct(t.t, t.kind, t.log_start, t.end)) first
  from thrown t join partitions p on p.part = t.part
  where if(kind = 1, position >= explained_to, end >= 0 or not deletable)
  group by t.part, t.proc, t.position)
"""


def query(_: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.thrown_back`."""
    return [WitnessQuery(SQL, ("thrown", "partitions"))]
