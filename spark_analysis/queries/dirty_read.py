"""dirty-read."""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import Conversion
from squall.checkers.history.tables import LATE_END
from squall.spark_analysis.query import Rule, Select, has_transactions


def query(history: Conversion) -> Sequence[Rule | Select]:
    """The query of `squall.checkers.anomalies.dirty_read`."""
    if not has_transactions(history):
        return []
    return [
        Rule(
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
