"""Finds corrupt: a record's payload, key, headers or timestamp differ from what was sent."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessRule
from squall.checkers.anomalies.logs import ObservedLog, logs_of
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult

ANOMALIES = (
    AnomalyDefinition(
        "corrupt",
        AnomalyFamily.DATA,
        "payload, key, headers or timestamp differ from what was sent",
        source="Kafka documentation, message format: a batch carries its CRC",
        needs=(HistoryNeed.READS,),
        meaning="records came back altered",
        meaning_of_one="record came back altered",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each offset of a partition at which a read record differs from what was sent."""
    for log in seen.view(logs_of):
        yield from _of(log)


def _of(log: ObservedLog) -> Iterator[Witness]:
    """Yield a witness for each offset at which a payload did not verify."""
    for off, op in log.corrupt.items():
        yield Witness("corrupt", "", log.partition.part, off, -1, op, -1, -1)


def _queries(history: ConversionResult) -> Queries:
    return (
        [WitnessRule("places", "val < 0 and is_read = 1", "'corrupt'", off="off", op="read_op")]
        if history.corrupt
        else []
    )


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
