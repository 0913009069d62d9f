"""A signal is the same in both worlds: by an event and a cancel scope, and by the queue of a simulation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio
import trio.testing

from squall.broker.env import NodeDead, WakeupSignal
from squall.broker.signals import EventSignal
from squall.chaos.runtimes.sim.env import SimEnv
from squall.chaos.runtimes.sim.world import SimWorld

Story = Callable[[WakeupSignal], Awaitable[None]]


class NoDisk:
    def delay_s(self, op: str) -> float:
        return 0.0


def env_of(world: SimWorld) -> SimEnv:
    return SimEnv(world, world.network, "a", 1, host="a", source=1, fs=cast(Any, None), disk=NoDisk())


def in_trio(story: Story) -> None:
    async def main() -> None:
        await story(EventSignal(trio.move_on_after))

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def in_simulation(story: Story) -> None:
    world = SimWorld(1)
    world.kernel.simulate(1, story, env_of(world).signal())


both = pytest.mark.parametrize("run", [in_trio, in_simulation])


@both
def test_it_wakes_at_once_and_says_so(run: Callable[[Story], None]) -> None:
    async def story(signal: WakeupSignal) -> None:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(set_after, signal, 2.0)
            assert await signal.wait(5.0)
            assert trio.current_time() - began == pytest.approx(2.0)
        assert not await signal.wait(1.0), "it is set for one wait"
        assert trio.current_time() - began == pytest.approx(3.0)

    run(story)


@both
def test_what_was_set_before_is_not_waited_for(run: Callable[[Story], None]) -> None:
    async def story(signal: WakeupSignal) -> None:
        began = trio.current_time()
        signal.set()
        signal.set()
        assert await signal.wait()
        assert trio.current_time() == began
        assert not await signal.wait(0.0)

    run(story)


@both
def test_a_wait_that_is_cancelled_leaves_it_as_it_was(run: Callable[[Story], None]) -> None:
    async def story(signal: WakeupSignal) -> None:
        with trio.move_on_after(1) as scope:
            await signal.wait(5.0)
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(set_after, signal, 3.0)
            assert await signal.wait(7.0), "the time of the cancelled wait is nobody's"

    run(story)


async def set_after(signal: WakeupSignal, seconds: float) -> None:
    await trio.sleep(seconds)
    signal.set()


def test_a_paused_node_hears_of_neither_word_nor_time() -> None:
    world = SimWorld(1)
    env = env_of(world)
    woken: list[tuple[float, bool]] = []

    async def wait(signal: WakeupSignal, seconds: float) -> None:
        woken.append((world.kernel.now, await signal.wait(seconds)))
        woken[-1] = (world.kernel.now, woken[-1][1])

    async def main() -> None:
        told = env.signal()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, told, 9.0)
            nursery.start_soon(wait, env.signal(), 2.0)
            await trio.sleep(1)
            env.pause()
            told.set()
            await trio.sleep(4)
            assert not woken
            env.resume()

    world.kernel.simulate(1, main)
    assert sorted(woken) == [(5.0, False), (5.0, True)]


def test_after_its_end_a_node_waits_for_nothing() -> None:
    world = SimWorld(1)
    env = env_of(world)

    async def main() -> None:
        signal = env.signal()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raises, signal)
            await trio.sleep(1)
            env.revoke()
            signal.set()
        with pytest.raises(NodeDead):
            await signal.wait(1.0)

    async def raises(signal: WakeupSignal) -> None:
        with pytest.raises(NodeDead):
            await signal.wait(5.0)

    world.kernel.simulate(1, main)
