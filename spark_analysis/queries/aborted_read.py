"""Finds the anomaly G1a with Spark: a read_committed reader got a record of a transaction that did not commit.
`squall.checkers.anomalies.aborted_read` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import LATE_END
from squall.spark_analysis.query import WitnessQuery, WitnessRule, has_transactions


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.aborted_read`; empty if the history cannot show the
    anomaly.
    """
    if not has_transactions(history):
        return []
    return [
        WitnessRule(
            "committed_reads",
            "never_commits",
            "'G1a'",
            evidence=f"if(late_commit, '{LATE_END}', if(final, 'final', 'reads'))",
            off="off",
            val="val",
            op="txn",
            proc="txn_proc",
            other="op",
        )
    ]
