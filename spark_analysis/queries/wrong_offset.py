"""Finds the anomaly wrong-offset with Spark: a record is not at the offset at which it was acknowledged.
`squall.checkers.anomalies.wrong_offset` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule


def query(_: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.wrong_offset`."""
    return [
        WitnessRule(
            "judged",
            """acked_at >= judged_from and read_min is not null
            and if(final_min is not null, acked_final, acked_read) = 0""",
            "'wrong-offset'",
            evidence="if(final_min is not null, 'final', 'reads')",
            off="acked_at",
            val="val",
            proc="producer",
            other="coalesce(final_min, read_min)",
        )
    ]
