"""phantom."""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import Conversion
from squall.spark_analysis.query import Rule, Select


def query(_: Conversion) -> Sequence[Rule | Select]:
    """The query of `squall.checkers.anomalies.phantom`."""
    return [Rule("judged", "sent = 0", "'phantom'", off="read_min", val="val")]
