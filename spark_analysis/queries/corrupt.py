"""Finds the anomaly corrupt with Spark: a record's payload, key, headers or timestamp differ from what was sent.
`squall.checkers.anomalies.corrupt` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.corrupt`; empty if the history cannot show the anomaly."""
    return (
        [WitnessRule("places", "val < 0 and is_read = 1", "'corrupt'", off="off", op="read_op")]
        if history.corrupt
        else []
    )
