"""Finds phantom: a value was read in a partition to which no producer sent it."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessRule
from squall.checkers.anomalies.logs import ObservedLog, logs_of
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult

ANOMALIES = (
    AnomalyDefinition(
        "phantom",
        AnomalyFamily.DATA,
        "a value that nobody sent, or in a partition that it was not sent to",
        source="Kafka documentation, design, Replication: a log holds what producers wrote to it",
        needs=(HistoryNeed.READS,),
        meaning="records were read that nobody sent there",
        meaning_of_one="record was read that nobody sent there",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each value that was read in a partition but never sent to it."""
    for log in seen.view(logs_of):
        yield from _of(log)


def _of(log: ObservedLog) -> Iterator[Witness]:
    """Yield a witness for each value that was read in a partition but never sent to it."""
    for value in log.values.values():
        if not value.sent:
            yield Witness("phantom", "", value.part, min(value.read_at), value.val, value.op, -1, -1)


def _queries(_: ConversionResult) -> Queries:
    return [WitnessRule("judged", "sent = 0", "'phantom'", off="read_min", val="val")]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
