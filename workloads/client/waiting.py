"""A way for tasks to wait for each other that plain events do not offer."""

from __future__ import annotations

import trio


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
