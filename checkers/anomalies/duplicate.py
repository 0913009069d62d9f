"""Finds duplicate: one value is at two offsets of a partition."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import (
    FINAL,
    JEPSEN,
    READS,
    AnomalyCheck,
    AnomalyDefinition,
    AnomalyFamily,
    HistoryNeed,
    HistoryViews,
)
from squall.checkers.anomalies.logs import ObservedLog, logs_of, witness
from squall.checkers.findings import Witness

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


CHECK = AnomalyCheck(__name__, ANOMALIES, find)
