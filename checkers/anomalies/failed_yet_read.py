"""Finds failed-yet-read: a record was read although its send definitely failed."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import (
    FINAL,
    JEPSEN,
    READS,
    AnomalyDefinition,
    AnomalyFamily,
    HistoryNeed,
    HistoryViews,
)
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessRule
from squall.checkers.anomalies.logs import logs_of, witness
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import FAIL

ANOMALIES = (
    AnomalyDefinition(
        "failed-yet-read",
        AnomalyFamily.DATA,
        "a value that was read although its send definitely failed: every attempt got an error that says that nothing "
        "was appended, or never left the client",
        source=f"{JEPSEN}; Kafka protocol, error codes: NOT_ENOUGH_REPLICAS (19) refuses before the append, "
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND (20) and time-outs leave it open",
        jepsen="G1a",
        other="the lowest offset it was read at",
        needs=(HistoryNeed.FAILURES, HistoryNeed.READS),
        meaning="records that were refused were read all the same",
        meaning_of_one="record that was refused was read all the same",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each value that was read although its send failed. Sends whose result Kafka leaves open
    (time-outs, lost connections, NOT_ENOUGH_REPLICAS_AFTER_APPEND) are INFO in a history, and give no witnesses.
    """
    for log in seen.view(logs_of):
        for value in log.values.values():
            if value.sent and value.st == FAIL and value.read_at:
                places, evidence = (value.final_at, FINAL) if value.final_at else (value.read_at, READS)
                yield witness("failed-yet-read", value, max(places), min(value.read_at), evidence)


def _queries(_: ConversionResult) -> Queries:
    return [
        WitnessRule(
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


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
