"""Two ways for tasks to wait for each other that plain events do not offer."""

from __future__ import annotations

import trio


class Signal:
    """Wakes one waiting task; remembers a wake-up that came while nobody waited."""

    __slots__ = ("_event", "_set")

    def __init__(self) -> None:
        self._set = False
        self._event: trio.Event | None = None

    def set(self) -> None:
        """Wake the waiter, or the next one at once."""
        self._set = True
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        """Until `set` was called since the last wait returned. One waiter at a time."""
        assert self._event is None, "a signal has one waiter"
        if self._set:
            await trio.lowlevel.checkpoint()
        else:
            self._event = trio.Event()
            try:
                await self._event.wait()
            finally:
                self._event = None
        self._set = False


class Bell:
    """Wakes all that wait now."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def ring(self) -> None:
        """Wake all that wait now."""
        if self._event.statistics().tasks_waiting:
            self._event.set()
            self._event = trio.Event()

    async def wait(self) -> None:
        """Until the next ring."""
        await self._event.wait()
