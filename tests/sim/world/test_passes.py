"""What is taken out of trio's passes changes nothing that a simulation could see."""

import signal

import pytest
import trio

from chaos.runtimes.sim import kernel, passes
from chaos.runtimes.sim.kernel import Kernel


def order(seed: int) -> list[tuple[float, int]]:
    """When which of many tasks went on, where several are woken at one moment, alone or together."""
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


@pytest.mark.parametrize("seed", range(5))
def test_tasks_run_in_the_same_order_as_in_all_of_trio(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lean = order(seed)
    monkeypatch.setattr(kernel, "make_lean", lambda: None)
    monkeypatch.setattr(passes.Schedule, "shuffle", passes.Schedule.__base__.shuffle)
    assert order(seed) == lean


def test_seeds_differ() -> None:
    assert order(1) != order(2)


def test_an_interruption_that_cannot_be_raised_at_once_is_heard_of() -> None:
    clock = Kernel()

    async def main() -> None:
        for _ in range(3 * passes.LISTEN_EVERY):
            await trio.sleep(1)

    async def interrupted() -> None:
        with_protection()
        await main()

    @trio.lowlevel.enable_ki_protection
    def with_protection() -> None:
        signal.raise_signal(signal.SIGINT)  # here it may not be raised: trio remembers it, and wakes its main task

    # Whoever started this may have had interruptions ignored, as shells do for what runs in the background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            clock.simulate(1, interrupted)
    finally:
        signal.signal(signal.SIGINT, before)
    assert clock.now < 2 * passes.LISTEN_EVERY


def test_trio_instruments_are_refused() -> None:
    class Instrument(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            """Would not be called."""

    async def main() -> None:
        trio.lowlevel.add_instrument(Instrument())
        passes.make_lean()

    with pytest.raises(AssertionError, match="instrumented"):
        trio.run(main)
