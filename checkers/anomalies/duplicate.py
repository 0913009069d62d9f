"""Finds duplicate: one value is at two offsets of a partition."""

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
from squall.checkers.anomalies.logs import ObservedLog, logs_of, witness
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult

ANOMALIES = (
    AnomalyDefinition(
        "duplicate",
        AnomalyFamily.DATA,
        "one value at two offsets of a partition",
        source=f"{JEPSEN}; KIP-98: Exactly Once Delivery (an idempotent producer's retries are appended once)",
        jepsen="duplicate",
        other="the lowest offset it was read at",
        needs=(HistoryNeed.READS,),
        meaning="records stand at two offsets",
        meaning_of_one="record stands at two offsets",
    ),
)


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each value that was read at two offsets of one partition."""
    for log in seen.view(logs_of):
        yield from _of(log)


def _of(log: ObservedLog) -> Iterator[Witness]:
    """Yield a witness for each value that was read at two offsets. Its evidence is `final` if final reads found the
    value at two offsets, else `reads`.
    """
    for value in log.values.values():
        for places, evidence in ((value.final_at, FINAL), (value.read_at, READS)):
            if len(places) > 1:
                yield witness("duplicate", value, max(places), min(places), evidence)
                break


def _queries(_: ConversionResult) -> Queries:
    return [
        WitnessRule(
            "judged",
            "final_min < final_max or read_min < read_max",
            "'duplicate'",
            evidence="if(final_min < final_max, 'final', 'reads')",
            off="if(final_min < final_max, final_max, read_max)",
            val="val",
            proc="producer",
            other="if(final_min < final_max, final_min, read_min)",
        )
    ]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
