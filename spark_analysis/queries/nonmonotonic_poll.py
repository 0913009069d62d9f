"""nonmonotonic-poll and int-nonmonotonic-poll."""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import Conversion
from squall.spark_analysis.query import Rule, Select


def query(history: Conversion) -> Sequence[Rule | Select]:
    """The query of `squall.checkers.anomalies.nonmonotonic_poll`."""
    if not history.holes:
        return []
    return [
        Rule(
            "records",
            "kind = 1 and before >= 0 and off <= before",
            "concat(if(inside = 1, 'int-', ''), 'nonmonotonic-poll')",
            off="off",
            val="val",
            proc="proc",
            other="before",
        )
    ]
