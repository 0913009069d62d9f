"""Finds the anomaly failed-yet-read with Spark: a record was read although its send definitely failed.
`squall.checkers.anomalies.failed_yet_read` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule


def query(_: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.failed_yet_read`."""
    return [
        WitnessRule(
            "judged",
            "sent = 1 and st = 1 and read_min is not null",
            "'failed-yet-read'",
            evidence="if(final_min is not null, 'final', 'reads')",
            off="coalesce(final_max, read_max)",
            val="val",
            proc="producer",
            other="read_min",
        )
    ]
