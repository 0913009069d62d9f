"""corrupt."""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import Conversion
from squall.spark_analysis.query import Rule, Select


def query(history: Conversion) -> Sequence[Rule | Select]:
    """The query of `squall.checkers.anomalies.corrupt`."""
    return [Rule("places", "val < 0 and is_read = 1", "'corrupt'", off="off", op="read_op")] if history.corrupt else []
