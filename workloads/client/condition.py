"""A way for tasks to wait for each other that plain events do not offer."""

from __future__ import annotations

import trio


class Condition:
    """Wakes all that wait now."""

    __slots__ = ("_rung",)

    def __init__(self) -> None:
        self._rung: trio.Event | None = None
        """What is set by the next ring; None while nobody waits."""

    def ring(self) -> None:
        """Wake all that wait now."""
        if self._rung is not None:
            self._rung.set()
            self._rung = None

    async def wait(self) -> None:
        """Wait until the next ring."""
        if self._rung is None:
            self._rung = trio.Event()
        await self._rung.wait()
