"""Our coordinator answers requests about a transactional id as Apache Kafka does, except for one named difference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from squall.chaos.runtimes.layout import addresses
from squall.chaos.runtimes.sim.runtime import SimRuntime
from squall.chaos.runtimes.sim.world import SimWorld
from squall.workloads.client.client import Client
from tests.support.transaction_answers import (
    CONCURRENT,
    REQUESTS,
    SETTINGS,
    Coordinators,
    cells,
    coordinators_of,
    expected,
    golden,
    lines,
)

FATAL = (("InitProducerId", 5), ("EndTxn commit", 5))
"""Requests to which a wrong answer once made producers end for good."""


def on_our_cluster(test: Callable[[Coordinators], Awaitable[None]]) -> None:
    """Run a test's body on three simulated brokers, one of which is paused."""
    world = SimWorld(7)
    runtime = SimRuntime(world, settings=SETTINGS)

    async def run() -> None:
        await runtime.start()
        client = Client(runtime.env("harness"), addresses(runtime.bootstrap("CLIENT")))
        async with trio.open_nursery() as nursery:
            await nursery.start(client.run)
            await test(await coordinators_of(runtime, client))
            nursery.cancel_scope.cancel()
        await runtime.stop()

    world.kernel.simulate(7, run)


@pytest.mark.parametrize(
    ("level", "requests"),
    [
        pytest.param(2, FATAL, marks=pytest.mark.gate, id="2-fatal"),
        pytest.param(2, REQUESTS, id="2"),
        pytest.param(0, REQUESTS, id="0"),
    ],
)
def test_each_state_request_and_epoch_has_kafkas_answer(level: int, requests: tuple[tuple[str, int], ...]) -> None:
    """Two answers were wrong once: EndTxn got PRODUCER_FENCED while markers were written, and so did an InitProducerId
    with the epoch from before a transaction timeout.
    """

    async def ask(asked: Coordinators) -> None:
        await asked.set_level(level)
        wanted = cells(level, requests)
        rows = tuple(f"{cell.row}: " for cell in wanted)
        assert lines(await asked.answers(wanted)) == [each for each in expected(golden(level)) if each.startswith(rows)]

    on_our_cluster(ask)


@pytest.mark.gate
@pytest.mark.parametrize("version", [4, 5])
def test_of_two_pipelined_ends_the_second_is_sent_back_while_markers_are_written(version: int) -> None:
    async def ask(asked: Coordinators) -> None:
        for n in range(20):
            assert await asked.pipelined_ends(f"pipelined {n}", version, version) == [0, CONCURRENT]

    on_our_cluster(ask)
