"""Finds the anomaly eos-duplicate with Spark: a consume-transform-produce application made two visible outputs of one
input. `squall.checkers.anomalies.eos_duplicate` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule

SQL = """
with visible as (
  select o.*, coalesce(t.late_commit, false) late
  from made o left join txn_values t on t.val = o.val where o.off >= 0),
numbered as (
  select *, row_number() over (partition by `group`, src order by op) nth,
         first_value(val) over (partition by `group`, src order by op) first,
         max(late) over (partition by `group`, src) any_late
  from visible)
select 'eos-duplicate' anomaly, if(any_late, 'late end', '') evidence, part, off, val, op, bigint(proc) proc,
       first other
from numbered left anti join twice on twice.val = src
where nth > 1
"""


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.eos_duplicate`; empty if the history cannot show the
    anomaly.
    """
    return [WitnessQuery(SQL, ("made", "twice", "txn_values"))] if history.outputs else []
