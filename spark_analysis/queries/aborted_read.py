"""G1a."""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import Conversion
from squall.checkers.history.tables import LATE_END
from squall.spark_analysis.query import Rule, Select, has_transactions


def query(history: Conversion) -> Sequence[Rule | Select]:
    """The query of `squall.checkers.anomalies.aborted_read`."""
    if not has_transactions(history):
        return []
    return [
        Rule(
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
