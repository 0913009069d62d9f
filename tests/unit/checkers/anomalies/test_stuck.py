"""What takes too long after healing."""

from __future__ import annotations

import pytest

from checkers.anomalies.stuck import liveness
from checkers.metrics import HEALED_GAP, OVERALL, READER_GAP, Limits, Measure


@pytest.mark.parametrize(("seconds", "stuck"), [(None, 0), (0.5, 2), (2.0, 0)])
def test_only_what_takes_longer_than_the_plan_allows_is_a_finding(seconds: float | None, stuck: int) -> None:
    measures = [
        Measure(HEALED_GAP, OVERALL, 0, (9e9, 0.0)),
        Measure(HEALED_GAP, 4, 0, (1e9, 0.0)),
        Measure(READER_GAP, 7, 4, (1e9, 0.0)),
    ]
    findings = liveness(measures, Limits(seconds, seconds))
    assert len(findings) == stuck
    if findings:
        producer, consumer = findings
        assert (producer.anomaly, producer.witnesses[0].part, producer.proc) == ("stuck-producer", 4, -1)
        assert (consumer.anomaly, consumer.witnesses[0].part, consumer.proc) == ("stuck-consumer", 4, 7)
