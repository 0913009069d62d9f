"""Finds nonmonotonic-poll, and int-nonmonotonic-poll inside one poll: a reader gets an offset that it had passed
already.
"""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import IN_ORDER, AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessRule
from squall.checkers.anomalies.reads import consecutive_reads, witness
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult

ANOMALIES = (
    AnomalyDefinition(
        "nonmonotonic-poll",
        AnomalyFamily.READERS,
        "a poll goes back, compared with the reader's previous poll",
        source=IN_ORDER,
        jepsen="nonmonotonic-poll",
        other="the offset read before",
        needs=(HistoryNeed.READS,),
        meaning="polls went back to records that had been read",
        meaning_of_one="poll went back to records that had been read",
    ),
    AnomalyDefinition(
        "int-nonmonotonic-poll",
        AnomalyFamily.READERS,
        "one poll goes back",
        source=IN_ORDER,
        jepsen="int-nonmonotonic-poll",
        other="the offset read before",
        needs=(HistoryNeed.READS,),
        meaning="polls returned an offset below the one before it",
        meaning_of_one="poll returned an offset below the one before it",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each record whose offset is not above the offset of the record that the reader got just
    before it.
    """
    for before, after in seen.view(consecutive_reads):
        if after.off <= before.off:
            yield witness("nonmonotonic-poll", before, after)


def _queries(history: ConversionResult) -> Queries:
    if not history.holes:
        return []
    return [
        WitnessRule(
            "records",
            "kind = 1 and before >= 0 and off <= before",
            "concat(if(inside = 1, 'int-', ''), 'nonmonotonic-poll')",
            off="off",
            val="val",
            proc="proc",
            other="before",
        )
    ]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
