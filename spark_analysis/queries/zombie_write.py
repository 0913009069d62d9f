"""Finds the anomaly zombie-write with Spark: a record became visible although its producer had been fenced before the
record was sent or its commit was requested. `squall.checkers.anomalies.zombie_write` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule, has_transactions

SQL = """
with given as (select * from inits where producer_id >= 0),
own as (
  select t.op txn, t.id, t.proc, max(i.t) since
  from txns t join given i on i.id = t.id and i.proc = t.proc and i.t <= t.t0
  group by t.op, t.id, t.proc),
fence as (
  select o.txn, min(struct(i.t, i.proc)) by
  from own o join given i on i.id = o.id and i.proc <> o.proc and i.t0 >= o.since
  group by o.txn)
select 'zombie-write' anomaly, if(c.final, 'final', 'reads') evidence, c.part, c.off, c.val, c.txn op,
       bigint(c.txn_proc) proc, bigint(by.proc) other
from committed_reads c join fence f on f.txn = c.txn join standing s on s.part = c.part and s.val = c.val
where s.t0 > by.t or c.te > by.t
"""


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.zombie_write`; empty if the history cannot show the
    anomaly.
    """
    if not has_transactions(history):
        return []
    return [WitnessQuery(SQL, ("txns", "inits", "committed_reads", "standing"))]
