"""Finds the anomaly lso-violation with Spark: a response's last stable offset or high watermark contradicts the rest of
the response. `squall.checkers.anomalies.lso_violation` has the full definition.
"""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import ConversionResult
from squall.spark_analysis.query import WitnessQuery, WitnessRule


def query(_: ConversionResult) -> Sequence[WitnessRule | WitnessQuery]:
    """Return the Spark query for `squall.checkers.anomalies.lso_violation`."""
    return [
        WitnessRule(
            "told",
            "hw >= 0 and lso > hw",
            "'lso-violation'",
            evidence="'above the high watermark'",
            off="lso",
            proc="proc",
            other="hw",
        ),
        WitnessRule(
            "told",
            "lso >= 0 and iso = 1 and last_off >= lso",
            "'lso-violation'",
            evidence="'read at or above it'",
            off="lso",
            proc="proc",
            other="last_off",
        ),
        WitnessRule(
            "told",
            "hw >= 0 and last_off >= hw",
            "'lso-violation'",
            evidence="'read at or above the high watermark'",
            off="hw",
            proc="proc",
            other="last_off",
        ),
    ]
