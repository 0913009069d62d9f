"""Lets tasks wait for repeated notifications, which a trio.Event does not offer."""

from __future__ import annotations

import trio


class TaskNotifier:
    """Wakes all tasks that wait at the time of a notification."""

    __slots__ = ("_notified",)

    def __init__(self) -> None:
        self._notified: trio.Event | None = None
        """Is set by the next `notify_all`; None while no task waits."""

    def notify_all(self) -> None:
        """Wake all tasks that wait now."""
        if self._notified is not None:
            self._notified.set()
            self._notified = None

    async def wait(self) -> None:
        """Wait until the next `notify_all`."""
        if self._notified is None:
            self._notified = trio.Event()
        await self._notified.wait()
