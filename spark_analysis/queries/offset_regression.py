"""Finds the anomaly offset-regression with Spark: a reported high watermark, last stable offset, latest offset or log
start goes back. `squall.checkers.anomalies.offset_regression` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import LISTED_START
from squall.spark_analysis.query import WitnessQuery, WitnessRule

LOG_STARTS = f"""
select 'offset-regression' anomaly, 'log start' evidence, listed.part, listed.log_start off, -1L val, listed.op,
       listed.proc, max(before.log_start) other
from told listed join told before on before.part = listed.part and before.epoch = listed.epoch
  and before.t1 < listed.t0 and before.log_start > listed.log_start
where listed.kind = {LISTED_START} and listed.epoch >= 0
group by listed.part, listed.log_start, listed.op, listed.proc
"""


def query(_: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.offset_regression`."""
    return [
        WitnessQuery(LOG_STARTS, ("told",)),
        *(_mark(mark, name) for mark, name in (("hw", "high watermark"), ("lso", "last stable offset"))),
    ]


def _mark(mark: str, name: str) -> WitnessRule:
    return WitnessRule(
        "told",
        f"{mark} >= 0 and {mark} < {mark}_before",
        "'offset-regression'",
        evidence=f"'{name}'",
        off=mark,
        proc="proc",
        other=f"{mark}_before",
    )
