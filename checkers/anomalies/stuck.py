"""stuck-producer and stuck-consumer: nothing succeeds for longer after healing than the plan allows."""

from __future__ import annotations

from collections.abc import Iterable

from checkers.anomalies.anomaly import Anomaly, Check, Family, Need
from checkers.findings import Finding, Witness
from checkers.metrics import HEALED_GAP, OVERALL, READER_GAP, Limits, Measure

ANOMALIES = (
    Anomaly(
        "stuck-producer",
        Family.LIVENESS,
        "no acknowledgement for longer than the plan allows, after healing",
        source="the plan's limit `stuck_s`",
        other="for how many ns",
        needs=(Need.SENDS,),
        meaning="partitions acknowledged nothing for too long after all faults had ended",
    ),
    Anomaly(
        "stuck-consumer",
        Family.LIVENESS,
        "a reader makes no progress for longer than the plan allows, after healing",
        source="the plan's limit `stuck_s`",
        other="for how many ns",
        needs=(Need.READS,),
        meaning="readers got nothing for too long after all faults had ended",
    ),
)
CHECK = Check(__name__, ANOMALIES)


def liveness(measures: Iterable[Measure], limits: Limits) -> list[Finding]:
    """stuck-producer and stuck-consumer: what took longer after healing than the plan allows."""
    findings = []
    for name, limit_s, anomaly in (
        (HEALED_GAP, limits.stuck_producer_s, "stuck-producer"),
        (READER_GAP, limits.stuck_consumer_s, "stuck-consumer"),
    ):
        if limit_s is None:
            continue
        for measure in measures:
            if measure.name == name and measure.a != OVERALL and measure.numbers[0] > limit_s * 1e9:
                part, proc = (measure.a, -1) if name == HEALED_GAP else (measure.b, measure.a)
                witness = Witness(anomaly, "", part, -1, -1, -1, proc, int(measure.numbers[0]))
                findings.append(Finding(anomaly, "", proc, 1, (witness,)))
    return findings
