"""Finds lso-violation: a response's last stable offset or high watermark contradicts the rest of the response."""

from __future__ import annotations

from collections.abc import Iterator

from squall.checkers.anomalies.anomaly import AnomalyDefinition, AnomalyFamily, HistoryNeed, HistoryViews
from squall.checkers.anomalies.answers import answers
from squall.checkers.anomalies.check import AnomalyCheck, Queries, WitnessRule
from squall.checkers.findings import Witness
from squall.checkers.history.conversion import ConversionResult

ANOMALIES = (
    AnomalyDefinition(
        "lso-violation",
        AnomalyFamily.READERS,
        "in one answer: a last stable offset above the high watermark, a read_committed read at or above it, or any "
        "read at or above the high watermark",
        source="KIP-98: Exactly Once Delivery (read_committed ends at the last stable offset); Kafka documentation, "
        "design, Replication (consumers get committed records only)",
        other="the high watermark, or the offset that was read",
        needs=(HistoryNeed.MARKS,),
        meaning="answers had last stable offsets or records beyond what may be read",
        meaning_of_one="answer had a last stable offset or a record beyond what may be read",
    ),
)

ABOVE_HIGH_WATERMARK, READ_ABOVE = "above the high watermark", "read at or above it"
UNCOMMITTED = "read at or above the high watermark"
"""Is the evidence that a record at or above the high watermark was returned."""


def find(seen: HistoryViews) -> Iterator[Witness]:
    """Yield a witness for each response that contradicts itself: it returns a record at or above its high watermark, or
    at read_committed one at or above its last stable offset; or its last stable offset is above its high watermark.
    """
    for each in seen.view(answers):
        if each.last_off >= each.hw >= 0:
            yield Witness("lso-violation", UNCOMMITTED, each.part, each.hw, -1, each.op, each.proc, each.last_off)
        if each.lso < 0:
            continue
        where = (each.part, each.lso, -1, each.op, each.proc)
        if 0 <= each.hw < each.lso:
            yield Witness("lso-violation", ABOVE_HIGH_WATERMARK, *where, each.hw)
        if each.iso == 1 and each.last_off >= each.lso:
            yield Witness("lso-violation", READ_ABOVE, *where, each.last_off)


def _queries(_: ConversionResult) -> Queries:
    return [
        WitnessRule(
            "told",
            "hw >= 0 and lso > hw",
            "'lso-violation'",
            evidence="'above the high watermark'",
            off="lso",
            proc="proc",
            other="hw",
        ),
        WitnessRule(
            "told",
            "lso >= 0 and iso = 1 and last_off >= lso",
            "'lso-violation'",
            evidence="'read at or above it'",
            off="lso",
            proc="proc",
            other="last_off",
        ),
        WitnessRule(
            "told",
            "hw >= 0 and last_off >= hw",
            "'lso-violation'",
            evidence="'read at or above the high watermark'",
            off="hw",
            proc="proc",
            other="last_off",
        ),
    ]


CHECK = AnomalyCheck(__name__, ANOMALIES, find, _queries)
