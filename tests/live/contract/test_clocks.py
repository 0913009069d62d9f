"""Faults of clocks, in every world: clients notice them, and the nodes' own traces prove them."""

from __future__ import annotations

import trio

from squall.chaos.faults.kinds.clock import clock_evidence
from squall.chaos.runtimes.contract import Runtime
from tests.live.contract.client import OneClient
from tests.live.contract.conftest import OnCluster
from tests.support.patience import LONG_S

HOUR_MS = 3_600_000


async def words(runtime: Runtime, count: int) -> None:
    """Wait until broker 1's trace has so many lines."""
    with trio.fail_after(LONG_S):
        while len(runtime.clock_reports(1)) < count:
            await trio.sleep(0.05)


def test_a_bent_clock_is_seen_in_timestamps_and_said_by_the_node(on_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        client, true = OneClient(runtime), runtime.env("clock")
        await client.create("t", message_timestamp_type="LogAppendTime")
        assert not runtime.clock_reports(1)
        await runtime.set_clock(1, -HOUR_MS)
        await words(runtime, 2)
        off_ms = (await client.must_produce("t")).log_append_time_ms - true.wall_ms()
        assert abs(off_ms + HOUR_MS) < 5_000
        told = clock_evidence(runtime.clock_reports(1), -HOUR_MS, 1.0)
        assert told["off"]
        await runtime.set_clock(1, 0)
        await words(runtime, 3)
        assert abs((await client.must_produce("t")).log_append_time_ms - true.wall_ms()) < 5_000
        assert abs(runtime.clock_reports(1)[-1].offset_ms) < 100

    on_broker(body)


def test_a_rate_adds_up_and_is_forgotten_when_it_is_healed(on_broker: OnCluster) -> None:
    async def body(runtime: Runtime) -> None:
        assert not runtime.clock_reports(1)
        await runtime.set_clock(1, 0, rate=1.5)
        await words(runtime, 4)
        told = clock_evidence(runtime.clock_reports(1), 0, 1.5)
        assert told["off"]
        assert told["shown_ms"][1] - told["shown_ms"][0] > 300
        assert not clock_evidence(runtime.clock_reports(1), 500, 1.5)["off"], "that is not what it was told"
        said = len(runtime.clock_reports(1))
        await runtime.set_clock(1, 0)
        await words(runtime, said + 1)
        assert abs(runtime.clock_reports(1)[-1].offset_ms) < 100

    on_broker(body)
