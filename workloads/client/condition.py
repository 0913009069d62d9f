"""Lets tasks wait for repeated notifications, which a trio.Event does not offer."""

from __future__ import annotations

import trio


class Condition:
    """Wakes all tasks that wait at the time of a notification."""

    __slots__ = ("_rung",)

    def __init__(self) -> None:
        self._rung: trio.Event | None = None
        """Is set by the next `ring`; None while no task waits."""

    def ring(self) -> None:
        """Wake all tasks that wait now."""
        if self._rung is not None:
            self._rung.set()
            self._rung = None

    async def wait(self) -> None:
        """Wait until the next `ring`."""
        if self._rung is None:
            self._rung = trio.Event()
        await self._rung.wait()
