"""Finds the anomaly duplicate with Spark: one value is at two offsets of a partition.
`squall.checkers.anomalies.duplicate` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule


def query(_: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.duplicate`."""
    return [
        WitnessRule(
            "judged",
            "final_min < final_max or read_min < read_max",
            "'duplicate'",
            evidence="if(final_min < final_max, 'final', 'reads')",
            off="if(final_min < final_max, final_max, read_max)",
            val="val",
            proc="producer",
            other="if(final_min < final_max, final_min, read_min)",
        )
    ]
