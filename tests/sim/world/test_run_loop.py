"""The simulation's own event loop runs tasks as trio's loop does; a simulation cannot see a difference."""

import signal
from collections.abc import Generator

import pytest
import trio
import trio._core._run as trio_run

from squall.chaos.runtimes.sim import run_loop
from squall.chaos.runtimes.sim.kernel import Kernel


def order(seed: int) -> list[tuple[float, int]]:
    """Return the time and order in which many tasks ran, some of them woken at the same moment, alone or together."""
    clock = Kernel()
    seen: list[tuple[float, int]] = []

    async def task(number: int, bell: trio.Event) -> None:
        for turn in range(3):
            await trio.sleep(0.1 * (turn + number % 3))
            seen.append((clock.now, number))
        await bell.wait()
        seen.append((clock.now, number))

    async def main() -> None:
        bell = trio.Event()
        async with trio.open_nursery() as nursery:
            for number in range(9):
                nursery.start_soon(task, number, bell)
            await trio.sleep(5)
            bell.set()

    clock.simulate(seed, main)
    return seen


def all_of_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let simulations use trio's own loop, with only its clock and random generator replaced."""
    monkeypatch.setattr(run_loop, "lean_run", trio_run.unrolled_run)
    monkeypatch.setattr(run_loop, "registers", trio.CancelScope._might_change_registered_deadline)


@pytest.mark.parametrize("seed", range(5))
def test_tasks_run_in_the_same_order_as_in_all_of_trio(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lean = order(seed)
    all_of_trio(monkeypatch)
    monkeypatch.setattr(run_loop.TaskOrderRandom, "shuffle", run_loop.TaskOrderRandom.__base__.shuffle)
    assert order(seed) == lean


def deadlines() -> list[tuple[float, object]]:
    """Return when cancel scopes are cancelled whose deadlines are moved, removed and set again, and how many deadlines
    trio counts.
    """
    clock = Kernel()
    seen: list[tuple[float, object]] = []

    async def main() -> None:
        runner = trio_run.GLOBAL_RUN_CONTEXT.runner
        for changes in ((), (9.0,), (0.5,), (float("inf"), 2.0), (9.0, 9.0, 0.25)):
            began = clock.now
            with trio.CancelScope(deadline=began + 1) as scope:
                for change in changes:
                    scope.deadline = began + change
                seen.append((scope._registered_deadline - began, runner.deadlines._active))
                await trio.sleep(5)
            seen.append((clock.now - began, scope.cancelled_caught))
            seen.append((scope._registered_deadline, runner.deadlines._active))
        with trio.CancelScope(deadline=clock.now + 1) as scope:
            scope.cancel()
            seen.append((scope._registered_deadline, runner.deadlines._active))
            await trio.sleep_forever()

    clock.simulate(1, main)
    return seen


def test_cancel_scopes_strike_when_they_do_in_all_of_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    lean = deadlines()
    assert [when for when, caught in lean if caught is True] == [1.0, 0.5, 2.0, 0.25]
    all_of_trio(monkeypatch)
    assert deadlines() == lean


def test_seeds_differ() -> None:
    assert order(1) != order(2)


def test_an_interruption_that_cannot_be_raised_at_once_is_heard_of() -> None:
    clock = Kernel()

    async def main() -> None:
        for _ in range(3 * run_loop.LISTEN_EVERY):
            await trio.sleep(1)

    async def interrupted() -> None:
        with_protection()
        await main()

    @trio.lowlevel.enable_ki_protection
    def with_protection() -> None:
        signal.raise_signal(signal.SIGINT)  # here it may not be raised: trio remembers it, and wakes its main task

    # The program that started this may have had interruptions ignored, as shells do for what runs in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            clock.simulate(1, interrupted)
    finally:
        signal.signal(signal.SIGINT, before)
    assert clock.now < 2 * run_loop.LISTEN_EVERY


def test_trio_instruments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Instrument(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            """Do nothing: it would never be called."""

    monkeypatch.setattr(trio_run, "unrolled_run", run_loop.lean_run)
    with pytest.raises(trio.TrioInternalError) as raised:
        trio.run(trio.sleep, 0, instruments=[Instrument()])
    assert "instrumented" in str(raised.value.__cause__)


def test_what_tasks_raise_and_who_else_is_cancelled_is_as_in_all_of_trio(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[str] = []

    async def task(number: int) -> None:
        try:
            await trio.sleep(1 if number == 1 else 3)
            raise ValueError(number)
        except trio.Cancelled:
            ends.append(f"{number} cancelled")
            raise

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(task, number)

    def told(seed: int) -> list[str]:
        ends.clear()
        with pytest.raises(ExceptionGroup) as raised:
            Kernel().simulate(seed, main)
        return [repr(raised.value.exceptions), *ends]

    lean = told(3)
    assert lean[0] == "(ValueError(1),)" and sorted(lean[1:]) == ["0 cancelled", "2 cancelled"]
    all_of_trio(monkeypatch)
    assert told(3) == lean


def test_a_task_that_waits_for_what_is_not_trios_is_refused() -> None:
    class Foreign:
        def __await__(self) -> Generator[object, None, None]:
            yield self

    async def main() -> None:
        await Foreign()

    with pytest.raises(TypeError, match="which is not trio's"):
        Kernel().simulate(1, main)
