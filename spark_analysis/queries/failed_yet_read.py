"""failed-yet-read."""

from __future__ import annotations

from collections.abc import Sequence

from squall.checkers.history.conversion import Conversion
from squall.spark_analysis.query import Rule, Select


def query(_: Conversion) -> Sequence[Rule | Select]:
    """The query of `squall.checkers.anomalies.failed_yet_read`."""
    return [
        Rule(
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
