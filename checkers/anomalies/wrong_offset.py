"""Finds wrong-offset: a record is not at the offset at which it was acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from squall.checkers.anomalies.anomaly import (
    FINAL,
    OWN,
    READS,
    AnomalyDefinition,
    AnomalyFamily,
    HistoryNeed,
    HistoryViews,
)
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessRule
from squall.checkers.anomalies.logs import ObservedLog, logs_of, witness
from squall.checkers.findings import Finding, Witness
from squall.checkers.history.conversion import ConversionResult
from squall.checkers.history.tables import ClientProcess
from squall.checkers.history.values import value_of
from squall.checkers.metrics import UNPLACED, MeasurementRow

NO_OFFSET = "no offset"
"""Is the evidence that the broker acknowledged the record without an offset."""
ANOMALIES = (
    AnomalyDefinition(
        "wrong-offset",
        AnomalyFamily.DATA,
        "the acknowledged offset is not where the value is found, or was not given although acks asked for it",
        source="Kafka protocol, ProduceResponse.base_offset",
        other="where it was found",
        needs=(HistoryNeed.ACKS, HistoryNeed.READS),
        meaning="records stand at another offset than was acknowledged",
        meaning_of_one="record stands at another offset than was acknowledged",
    ),
)


def unplaced(measures: Iterable[MeasurementRow], processes: Iterable[ClientProcess]) -> list[Finding]:
    """Return the findings of sends that were acknowledged without an offset, although the producer asked for one
    (acks=all or acks=1). Only Squall's own client is judged: a client library may report no offset, for example for a
    duplicate of an idempotent producer (DUPLICATE_SEQUENCE_NUMBER).
    """
    asked = {each.proc for each in processes if each.client == OWN and each.settings.get("acks") != 0}
    found = []
    for measure in measures:
        if measure.name == UNPLACED and measure.b in asked:
            part, proc, (count, first) = measure.a, measure.b, map(int, measure.numbers)
            witness = Witness("wrong-offset", NO_OFFSET, part, -1, value_of(proc, first), -1, proc, -1)
            found.append(Finding("wrong-offset", NO_OFFSET, proc, count, (witness,), ((part, count),)))
    return found


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each record that was acknowledged at one offset of its partition and found only at others."""
    for log in seen.view(logs_of):
        yield from _of(log)


def _of(log: ObservedLog) -> Iterator[Witness]:
    """Yield a witness for each value that was acknowledged at one offset and found only at others. If final reads found
    the value, other reads of it do not count.

    Offsets below `judged_from` are left out: retention or a request may have removed the record there, so a second copy
    elsewhere proves nothing.
    """
    for value in log.values.values():
        places, evidence = (value.final_at, FINAL) if value.final_at else (value.read_at, READS)
        if value.acked_at >= log.partition.judged_from and places and value.acked_at not in places:
            yield witness("wrong-offset", value, value.acked_at, min(places), evidence)


def _queries(_: ConversionResult) -> Queries:
    return [
        WitnessRule(
            "judged",
            """acked_at >= judged_from and read_min is not null
            and if(final_min is not null, acked_final, acked_read) = 0""",
            "'wrong-offset'",
            evidence="if(final_min is not null, 'final', 'reads')",
            off="acked_at",
            val="val",
            proc="producer",
            other="coalesce(final_min, read_min)",
        )
    ]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
