"""dual-ownership."""

from __future__ import annotations

from collections.abc import Sequence

from checkers.history.conversion import Conversion
from spark_analysis.query import Rule, Select

SQL = """
select 'dual-ownership' anomaly, '' evidence, b.part, b.pos off, -1L val, -1L op, bigint(b.proc) proc,
       bigint(a.proc) other
from holds a join holds b on a.`group` = b.`group` and a.part = b.part and a.proc <> b.proc
join partitions p on p.part = b.part
where (a.t0 < b.t0 or (a.t0 = b.t0 and a.proc < b.proc)) and a.proved >= b.t0 and b.proved >= b.t0 and not p.deleted
"""


def query(history: Conversion) -> Sequence[Rule | Select]:
    """The query of `checkers.anomalies.dual_ownership`. Which requests prove ownership is decided when the history is
    converted (`Hold.proved`).
    """
    return [Select(SQL, ("holds", "partitions"))] if history.holds else []
