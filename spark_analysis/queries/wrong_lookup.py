"""Finds the anomaly wrong-lookup with Spark: a look-up of an offset by timestamp passes over a record that it should
have found. `squall.checkers.anomalies.wrong_lookup` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule

SQL = """
select 'wrong-lookup' anomaly, '' evidence, l.part, l.known off, -1L val, l.op, bigint(l.proc) proc, l.off other
from lookups l join partitions p on p.part = l.part
where not compacted and not deleted and l.known >= judged_from and (not deletable or cover_t0 >= l.t1)
  and (l.off < 0 or l.off > l.known)
"""


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.wrong_lookup`; empty if the history cannot show the
    anomaly.
    """
    return [WitnessQuery(SQL, ("lookups", "partitions"))] if history.lookups else []
