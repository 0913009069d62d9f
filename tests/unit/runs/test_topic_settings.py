"""Checks which settings of topics are in force, as planned for a simulation and as a broker answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from squall.chaos.plans.plan import make_plan
from squall.chaos.runs import topic_settings
from squall.chaos.runs.topic_settings import NAMES, asked_settings, planned_settings
from squall.workloads.client.connection import RequestFailed, UnsupportedApi
from tests.support.brokers.memory_env import FakeEnv
from tests.support.clusters.fake_cluster import FakeCluster

ALL = dict.fromkeys(NAMES, "1")


def in_a_plan(brokers: Mapping[str, str], topic: Mapping[str, str]) -> Mapping[str, str]:
    values = {"seed": 1, "runtime": "sim", "cluster": {"settings": brokers}}
    plan = make_plan({**values, "workload": {"name": "steady", "topic_settings": topic}})
    (found,) = planned_settings(plan).values()
    return found


def test_without_settings_kafkas_defaults_are_in_force() -> None:
    assert in_a_plan({}, {}) == {
        "cleanup.policy": "delete",
        "retention.ms": "604800000",
        "retention.bytes": "-1",
        "segment.bytes": "1073741824",
        "segment.ms": "604800000",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "false",
    }


@pytest.mark.parametrize(
    ("brokers", "topic", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, {}, "3600000"),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, {}, "120000"),
        ({"log.retention.minutes": "2", "log.retention.ms": "3000"}, {}, "3000"),
        ({"log.retention.ms": "3000"}, {"retention.ms": "-1"}, "-1"),
    ],
)
def test_a_topics_own_settings_go_before_the_brokers_and_finer_ones_before_coarser_ones(
    brokers: dict[str, str], topic: dict[str, str], retention_ms: str
) -> None:
    assert in_a_plan(brokers, topic)["retention.ms"] == retention_ms


def test_lists_and_flags_are_written_as_brokers_answer_them() -> None:
    found = in_a_plan({"unclean.leader.election.enable": "true"}, {"cleanup.policy": "compact,delete"})
    assert (found["cleanup.policy"], found["unclean.leader.election.enable"]) == ("compact,delete", "true")


async def ask(answers: Sequence[Any], monkeypatch: pytest.MonkeyPatch) -> topic_settings.Settings:
    """Return the settings found of topics t and u if requests are answered so, the last answer again and again."""
    coming = [*answers]

    async def settings_in_force(*_: Any) -> dict[str, dict[str, str]]:
        await trio.lowlevel.checkpoint()
        answer = coming.pop(0) if len(coming) > 1 else coming[0]
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    monkeypatch.setattr(topic_settings, "settings_in_force", settings_in_force)
    cluster = FakeCluster()
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
        found = await asked_settings(FakeEnv(cluster, 1), [cluster.address(1)], ["t", "u"], 5.0)
        nursery.cancel_scope.cancel()
    return found


async def test_who_does_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    answers = [RequestFailed("TIMED_OUT", sent=True), {"t": ALL}, {}, {"u": ALL}]
    assert await ask(answers, monkeypatch) == {"t": ALL, "u": ALL}


async def test_a_topic_whose_settings_no_broker_tells_in_time_has_none(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    assert await ask([{"t": ALL, "u": {"retention.ms": "1"}}], monkeypatch) == {"t": ALL, "u": {}}


async def test_brokers_that_do_not_know_the_request_are_asked_once(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    assert await ask([UnsupportedApi("no"), {"t": ALL}], monkeypatch) == {"t": {}, "u": {}}
