"""corrupt."""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule


def query(history: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """The query of `squall.checkers.anomalies.corrupt`."""
    return (
        [WitnessRule("places", "val < 0 and is_read = 1", "'corrupt'", off="off", op="read_op")]
        if history.corrupt
        else []
    )
