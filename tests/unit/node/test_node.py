"""A node's life: what its start waits for."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from squall.broker.node import Node, by_period


class Lifecycle:
    """A broker that registers, if `registers`, and has caught up then."""

    def __init__(self, registers: bool) -> None:
        self.registers = registers
        self.caught_up = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        if self.registers:
            task_status.started()
            self.caught_up.set()
        await trio.sleep_forever()


async def joined(lifecycle: Any, stop: trio.Event) -> bool:
    node = Node.__new__(Node)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            if not lifecycle.registers:
                nursery.start_soon(set_soon, stop)
            found = await node._join(nursery, lifecycle, stop)
            nursery.cancel_scope.cancel()
    return found


async def set_soon(stop: trio.Event) -> None:
    await trio.testing.wait_all_tasks_blocked()
    stop.set()


async def test_a_node_that_finds_no_controller_can_be_stopped(autojump_clock: Any) -> None:
    assert await joined(Lifecycle(registers=False), trio.Event()) is False


async def test_a_node_that_registers_joins(autojump_clock: Any) -> None:
    assert await joined(Lifecycle(registers=True), trio.Event()) is True


def test_what_is_done_equally_often_is_done_in_one_wake_up_and_what_has_no_period_never() -> None:
    done: list[str] = []
    found = by_period(
        (1.0, lambda: done.append("first")),
        (0.0, lambda: done.append("never")),
        (2.5, lambda: done.append("seldom")),
        (1.0, lambda: done.append("second")),
    )
    assert list(found) == [1.0, 2.5]
    for act in found[1.0]:
        act()
    assert done == ["first", "second"]
