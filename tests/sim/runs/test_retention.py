"""With retention set for brokers or topics, records disappear in time, and none disappears too early."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from squall.broker.log import log, retention
from squall.broker.log.config import LogConfig
from squall.broker.log.segment import Segment
from squall.chaos.plans.plan import Plan, make_plan
from squall.chaos.runs.result import SimResult
from squall.chaos.runs.simulation import simulate
from squall.checkers.history.parser import parse
from squall.checkers.history.tables import ObservedPartition

pytestmark = pytest.mark.gate

LOOKS = {"log.retention.check.interval.ms": "100"}
SMALL = {"segment.bytes": "2048"}


def steady(brokers: Mapping[str, str], topic: Mapping[str, str]) -> Plan:
    """Return a plan with ten seconds of small records to one partition, without a fault."""
    return make_plan(
        {
            "seed": 3,
            "runtime": "sim",
            "warmup_s": 1,
            "time_s": 9,
            "cluster": {"settings": {**LOOKS, **brokers}},
            "workload": {"name": "steady", "rate": 20, "topic_settings": {**SMALL, **topic}},
        }
    )


def partitions_of(result: SimResult) -> Sequence[ObservedPartition]:
    return parse(result.files["history.jsonl"].splitlines(keepends=True)).partitions


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make brokers treat retention.ms as microseconds: they delete records a thousand times too early."""
    deletable = retention.deletable

    def too_early(segments: Sequence[Segment], config: LogConfig, *more: Any) -> int:
        return deletable(segments, replace(config, retention_ms=config.retention_ms // 1000), *more)

    monkeypatch.setattr(log, "deletable", too_early)


@pytest.mark.parametrize(
    ("brokers", "topic"),
    [
        ({}, {"retention.ms": "2500"}),
        ({"log.retention.ms": "2500"}, {}),
        ({"log.retention.bytes": "4096"}, {}),
        ({"log.retention.hours": "100", "log.retention.ms": "2500"}, {}),
        ({"log.retention.ms": "-1"}, {"retention.bytes": "4096"}),
    ],
)
def test_what_retention_removes_is_no_loss_whoever_set_it(brokers: dict[str, str], topic: dict[str, str]) -> None:
    result = simulate(steady(brokers, topic))
    assert (result.verdict, result.anomalies) == ("valid", ()), result.reasons
    assert all(each.log_start == each.judged_from > 0 for each in partitions_of(result))


@pytest.mark.parametrize(
    ("brokers", "topic"), [({}, {"retention.ms": "3600000"}), ({"log.retention.minutes": "60"}, {})]
)
@pytest.mark.usefixtures("hasty")
def test_an_hour_of_retention_that_is_over_after_seconds_is_a_loss(
    brokers: dict[str, str], topic: dict[str, str]
) -> None:
    result = simulate(steady(brokers, topic))
    assert (result.verdict, result.anomalies) == ("invalid", ("lost-write",)), result.reasons
    assert all(each.log_start > each.judged_from == 0 for each in partitions_of(result))


def test_members_are_not_behind_at_inputs_that_retention_removed() -> None:
    """A member whose position is below the log start continues at the end of the log, where it has nothing left to
    read.
    """
    plan = make_plan(
        {
            "seed": 5,
            "runtime": "sim",
            "warmup_s": 1,
            "time_s": 4,
            "cluster": {"settings": {"log.retention.check.interval.ms": "15"}},
            "workload": {"name": "pipeline", "topic_settings": {"segment.bytes": "1024", "retention.ms": "1"}},
        }
    )
    result = simulate(plan)
    after = json.loads(result.files["run.json"])["reads_after_healing"]
    assert (after["ok"], after["behind"], result.anomalies) == (True, [], ()), result.reasons
    assert after["took_s"] >= after["limit_s"], "some reader did not come to where the writes after healing were"
    assert result.verdict == "unknown", "no record was left to read"
