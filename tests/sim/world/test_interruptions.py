"""A signal interrupts the code that runs at that moment, mostly a broker's: that is no failure of the broker."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from squall.broker.node import Node
from squall.chaos.cli import INTERRUPTED, run
from squall.chaos.errors import HarnessError
from squall.chaos.plans.plan import Plan
from squall.chaos.runs import simulation
from squall.chaos.runs.run import Run
from squall.chaos.runs.simulation import simulate
from squall.chaos.runtimes.sim import run_loop
from squall.chaos.runtimes.sim.invariants.watch import InvariantChecker
from squall.chaos.runtimes.sim.runtime import SimRuntime
from squall.workloads.client.producer import Producer


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
    listen, heard = run_loop._listen, []

    def interrupted(*args: Any) -> None:
        heard.append(args)
        if len(heard) == 3:
            signal.raise_signal(signal.SIGTERM)
        listen(*args)

    monkeypatch.setattr(run_loop, "_listen", interrupted)
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


def in_a_nursery(monkeypatch: pytest.MonkeyPatch) -> None:
    async def load(self: Run, around: Any, nemesis: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            await trio.sleep(0.5)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Run, "_load", load)


def while_a_client_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    send, sent = Producer.send, list[Any]()

    def interrupted(self: Producer, *args: Any) -> None:
        sent.append(args)
        if len(sent) == 30:
            signal.raise_signal(signal.SIGTERM)
        send(self, *args)

    monkeypatch.setattr(Producer, "send", interrupted)


def while_an_event_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    look, looks = InvariantChecker.look, list[Any]()

    def interrupted(self: InvariantChecker, *args: Any) -> None:
        looks.append(args)
        if len(looks) == 300:
            signal.raise_signal(signal.SIGTERM)
        look(self, *args)

    monkeypatch.setattr(InvariantChecker, "look", interrupted)


def while_it_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **named: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(simulation, "judge_bytes", interrupted)


def stop_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop(self: SimRuntime) -> None:
        raise HarnessError("a broker does not stop")

    monkeypatch.setattr(SimRuntime, "stop", stop)


@pytest.mark.parametrize("trouble", [None, stop_fails], ids=["alone", "and-stopping-fails"])
@pytest.mark.parametrize("when", [in_a_nursery, while_a_client_sends, while_an_event_happens, while_it_is_judged])
def test_a_signal_ends_the_simulation_and_is_no_failure_of_the_harness(
    when: Callable[[pytest.MonkeyPatch], None],
    trouble: Callable[[pytest.MonkeyPatch], None] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    when(monkeypatch)
    if trouble is not None:
        trouble(monkeypatch)
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        simulate(Plan(seed=1, time_s=2.0))


def test_a_signal_out_of_a_nursery_is_exit_code_130_and_leaves_no_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    in_a_nursery(monkeypatch)
    assert run(["sim", "--seed", "1", "--time", "2", "--out", str(tmp_path)]) == INTERRUPTED
    assert "squall: interrupted" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
