"""Faults that alter the same setting of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from squall.chaos.faults.acts import topics as acts
from squall.chaos.faults.proofs import changed_topics
from squall.workloads.client.new_topic import NewTopic
from squall.workloads.control import AdminLog


async def test_who_alters_the_same_setting_waits_for_its_turn(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    """Else the second may never see its value: the first takes its own back. (Swarm seed 1300335.)"""
    values = {"segment.bytes": "65536"}
    altered: list[str] = []

    async def alter_topics(_: Any, wanted: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        await trio.sleep(0.3)
        values.update(wanted["t"])
        altered.append(values["segment.bytes"])
        return {"t": ""}

    async def topic_setting(*_: Any) -> str:
        await trio.sleep(0.3)
        return values["segment.bytes"]

    monkeypatch.setattr(acts.topics, "alter_topics", alter_topics)
    monkeypatch.setattr(acts.topics, "topic_setting", topic_setting)
    recorder = SimpleNamespace(partitions={}, process=lambda *_: 1)
    topic = NewTopic("t", 1, 1, {"segment.bytes": "65536"})
    desk = AdminLog([topic], cast(Any, recorder), [])
    stage = SimpleNamespace(
        cluster=SimpleNamespace(client=None),
        rng=lambda *_: Random(1),
        left_s=lambda p: p.ends_at - trio.current_time(),
    )

    async def play(at_s: float, for_s: float, value: int) -> SimpleNamespace:
        await trio.sleep(at_s)
        p = SimpleNamespace(fault=SimpleNamespace(params={"value": value}), evidence={}, ends_at=at_s + for_s)
        await acts._alter(cast(Any, stage), cast(Any, p), desk, "segment")
        seen.append(p.evidence["seen"])
        return p

    seen: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, 0, 2.0, 16384)
        nursery.start_soon(play, 1.8, 3.0, 32768)
    assert seen == ["16384", "32768"]
    assert altered == ["16384", "65536", "32768", "65536"]


@pytest.mark.parametrize(("more", "lacks"), [({"log_start": 5}, False), ({"log_start": 0}, True),
                                             ({"log_start": 0, "remade": True}, False)])  # fmt: skip
def test_records_stay_deleted_unless_their_topic_is_made_anew(more: Mapping[str, Any], lacks: bool) -> None:
    seen = {"deleted": {"t-0": {"before": 5, "low_watermark": 5, **more}}}
    assert ("a log began before" in changed_topics(seen, {"how": "delete_records"}, [])) is lacks
