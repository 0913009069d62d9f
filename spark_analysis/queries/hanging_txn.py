"""Finds the anomaly hanging-txn with Spark: after healing, a last stable offset does not move for longer than a
transaction may last. `squall.checkers.anomalies.hanging_txn` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.anomalies.hanging_txn import LOOKED_FOR_EVERY_MS
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.values import AFTER_HEALING
from squall.spark_analysis.query import WitnessQuery, WitnessRule, has_transactions

SQL = f"""
with healed as (
  select min(r.t0) ns from records r join processes p on p.proc = r.proc
  where r.kind = 0 and contains(p.settings, '"{AFTER_HEALING}"')),
answers as (
  select told.* from told cross join healed
  where (final > 0 or coalesce(t0 >= ns, false)) and lso >= 0 and hw >= 0),
longest as (select part, (max(timeout_ms) + {LOOKED_FOR_EVERY_MS}L) * 1000000L ns from txn_values group by part),
last as (select part, max(struct(t1, op, idx, lso, hw, final)) at from answers group by part),
since as (
  select a.part, min(a.t1) t1 from answers a join last l on l.part = a.part and l.at.lso = a.lso group by a.part)
select 'hanging-txn' anomaly, '' evidence, l.part, l.at.lso off, -1L val, l.at.op op, -1L proc, l.at.hw other
from last l join since s on s.part = l.part join longest t on t.part = l.part
where l.at.final > 0 and l.at.lso < l.at.hw and l.at.t1 - s.t1 > t.ns
"""


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.hanging_txn`; empty if the history cannot show the anomaly.
    """
    return [WitnessQuery(SQL, ("told", "txn_values", "records", "processes"))] if has_transactions(history) else []
