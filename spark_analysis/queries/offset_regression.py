"""offset-regression."""

from __future__ import annotations

from collections.abc import Sequence

from checkers.history.conversion import Conversion
from spark_analysis.query import Rule, Select


def query(_: Conversion) -> Sequence[Rule | Select]:
    """The query of `checkers.anomalies.offset_regression`."""
    return [
        Rule(
            "told",
            f"{mark} >= 0 and {mark} < {mark}_before",
            "'offset-regression'",
            evidence=f"'{name}'",
            off=mark,
            proc="proc",
            other=f"{mark}_before",
        )
        for mark, name in (("hw", "high watermark"), ("lso", "last stable offset"))
    ]
