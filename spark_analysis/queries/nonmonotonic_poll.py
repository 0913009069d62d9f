"""nonmonotonic-poll and int-nonmonotonic-poll."""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """The query of `squall.checkers.anomalies.nonmonotonic_poll`."""
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
