"""Finds the anomalies nonmonotonic-poll and (inside one poll) int-nonmonotonic-poll with Spark: a reader gets an offset
that it had passed already. `squall.checkers.anomalies.nonmonotonic_poll` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.nonmonotonic_poll`; empty if the history cannot show the
    anomaly.
    """
    if not history.holes:
        return []
    return [
        WitnessRule(
            "records",
            "kind = 1 and before >= 0 and off <= before",
            "concat(if(inside = 1, 'int-', ''), 'nonmonotonic-poll')",
            off="off",
            val="val",
            proc="proc",
            other="before",
        )
    ]
