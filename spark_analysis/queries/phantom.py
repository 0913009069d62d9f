"""Finds the anomaly phantom with Spark: a value was read in a partition to which no producer sent it.
`squall.checkers.anomalies.phantom` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule


def query(_: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.phantom`."""
    return [WitnessRule("judged", "sent = 0", "'phantom'", off="read_min", val="val")]
