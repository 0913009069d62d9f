"""A signal interrupts whatever runs just then: most often a broker, which has not failed for that."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from broker.node import Node
from chaos.plans.plan import Plan
from chaos.runs.simulation import simulate
from chaos.runtimes.sim import passes


def raise_out_of_nowhere(number: int, frame: Any) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


@pytest.fixture(autouse=True)
def _sigterm_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, raise_out_of_nowhere)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_signal_between_two_tasks_ends_the_simulation_and_is_no_failure_of_its_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listen, heard = passes._listen, []

    def interrupted(*args: Any) -> None:
        heard.append(args)
        if len(heard) == 3:
            signal.raise_signal(signal.SIGTERM)
        listen(*args)

    monkeypatch.setattr(passes, "_listen", interrupted)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        simulate(Plan(seed=1, time_s=2.0))


def test_a_signal_that_hits_a_broker_ends_the_simulation_and_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    run, hit = Node.run, []

    async def interrupted(self: Node, *args: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, self, *args)
            if not hit:
                hit.append(self)
                nursery.start_soon(interrupt)

    async def interrupt() -> None:
        await trio.sleep(1)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Node, "run", interrupted)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        simulate(Plan(seed=1, time_s=2.0))
    assert hit
