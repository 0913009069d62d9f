"""Finds the anomaly dirty-read with Spark: a read_committed reader got a record before anybody requested the commit of
its transaction. `squall.checkers.anomalies.dirty_read` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import LATE_END
from squall.spark_analysis.query import WitnessQuery, WitnessRule, has_transactions


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.dirty_read`; empty if the history cannot show the anomaly.
    """
    if not has_transactions(history):
        return []
    return [
        WitnessRule(
            "committed_reads",
            "not never_commits and first <= te",
            "'dirty-read'",
            evidence=f"if(late_commit, '{LATE_END}', '')",
            off="off",
            val="val",
            op="txn",
            proc="txn_proc",
            other="op",
        )
    ]
