"""Tasks that work in turns, with others served in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from tests.support.brokers.one_broker import OneBroker


def run_turns(room: OneBroker, between: Callable[[], None]) -> int:
    """Let the tasks run that were started. How often others had their turn in between."""
    turns, busy = 0, len(room.started)

    async def run() -> None:
        async def others() -> None:
            nonlocal turns
            while busy:
                await trio.lowlevel.checkpoint()
                turns += 1
                between()

        async def one(function: Any, args: Any) -> None:
            nonlocal busy
            await function(*args)
            busy -= 1

        tasks, room.started[:] = list(room.started), []
        async with trio.open_nursery() as nursery:
            for function, args in tasks:
                nursery.start_soon(one, function, args)
            nursery.start_soon(others)

    trio.run(run)
    return turns
