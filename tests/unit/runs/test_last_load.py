"""A load continues after its last fault for as long as it may still show an outage that stays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from squall.chaos.plans.plan import with_schedule
from squall.chaos.plans.schedule import DEFAULT_KINDS
from squall.chaos.runs.last_load import MARGIN_S, outlast, write_beside
from squall.checkers.anomalies.stuck import liveness
from squall.checkers.measures import measure
from squall.checkers.metrics import StuckLimits, context_of
from squall.checkers.nemesis_log import parse_faults
from squall.workloads.client.cluster import Place
from squall.workloads.post_heal_writes import PostHealWrites
from tests.support.brokers.memory_env import FakeEnv
from tests.support.histories.builder import HistoryBuilder
from tests.support.histories.nemesis_lines import fault_line

"""No client connects."""


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


async def test_where_every_partition_has_acknowledged_since_nothing_is_waited_for(clock: MockClock) -> None:
    assert await outlast(FakeEnv(), {0: 30.0, 1: 31.0}, (0, 1), 30.0, 15)
    assert trio.current_time() == 0


async def test_the_load_goes_on_until_the_last_partition_acknowledges(clock: MockClock) -> None:
    last_ack = {0: 0.0}

    async def come_back() -> None:
        await trio.sleep(6.1)
        last_ack[1] = trio.current_time()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_back)
        assert await outlast(FakeEnv(), last_ack, (0, 1), 0.0, 15)
    assert trio.current_time() == pytest.approx(6.1, abs=0.2)


async def test_an_outage_that_stays_is_waited_for_long_enough_to_be_a_finding_of_the_load(clock: MockClock) -> None:
    healed = 0.5
    assert not await outlast(FakeEnv(), {0: 0.4}, (0,), healed, 15)
    ended_s = trio.current_time()
    h = HistoryBuilder()
    p = h.producer()
    h.sent(p, 0)
    for tenth in range(1, int(ended_s * 10) + 1):
        h.now = tenth * 100_000_000
        h.send(p)
    faults, _ = parse_faults([fault_line(began_ms=10, ended_ms=int(healed * 1000))])
    history = h.history()
    (finding,) = liveness(measure(history, context_of(history, faults)), StuckLimits(15, 15))
    assert finding.anomaly == "stuck-producer"
    assert ended_s < healed + 15 + MARGIN_S + 0.2


async def test_a_fresh_client_writes_where_the_load_stands_still_until_it_is_served(clock: MockClock) -> None:
    """t-0 takes its second write, t-1 continues. Once the load was served and is stuck again, it writes again."""
    last_ack, wrote = {0: -5.0}, list[tuple[int, Sequence[Place]]]()

    async def write(places: Sequence[Place]) -> PostHealWrites:
        wrote.append((round(trio.current_time()), places))
        return PostHealWrites({} if len(wrote) == 1 else dict.fromkeys(places, 7), {})

    async def served_now_and_then() -> None:
        for second in range(60):
            last_ack[1] = float(second)
            if second == 30:
                last_ack[0] = 30.0
            await trio.sleep(1)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(served_now_and_then)
        nursery.start_soon(write_beside, FakeEnv(), last_ack, {("t", 0): 0, ("t", 1): 1}, 5.0, write)
    assert wrote == [(5, [("t", 0)]), (5, [("t", 0)]), (35, [("t", 0)])]


def test_the_default_plan_alone_would_end_too_early_to_show_it() -> None:
    """Why the load waits: its quiet end is shorter than what counts as stuck."""
    plan = with_schedule({"seed": 7}, DEFAULT_KINDS)
    last_end_s = max(fault.at_s + fault.duration_s for fault in plan.timeline())
    assert 0 < plan.time_s - last_end_s < plan.limits.stuck_s
