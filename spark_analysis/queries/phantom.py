"""phantom."""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule


def query(_: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """The query of `squall.checkers.anomalies.phantom`."""
    return [WitnessRule("judged", "sent = 0", "'phantom'", off="read_min", val="val")]
