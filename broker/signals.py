"""Implements wake-up signals with trio's events. The simulator has a cheaper implementation of its own."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import trio

from squall.broker.env import WakeupSignal
from squall.broker.overriding import override


class EventSignal(WakeupSignal):
    """Implements `squall.broker.env.WakeupSignal` with a trio event. `timeout` is the method `Env.timeout`: it returns
    a cancel scope that ends after so many seconds.
    """

    __slots__ = ("_event", "_set", "_timeout")

    def __init__(self, timeout: Callable[[float], trio.CancelScope]) -> None:
        self._timeout = timeout
        self._set = False
        self._event: trio.Event | None = None

    @override
    def set(self) -> None:
        self._set = True
        if self._event is not None:
            self._event.set()

    @override
    async def wait(self, seconds: float = inf) -> bool:
        assert self._event is None, "a signal has one waiter"
        if self._set:
            await trio.lowlevel.checkpoint()
        else:
            event = self._event = trio.Event()
            try:
                if seconds == inf:
                    await event.wait()
                else:
                    with self._timeout(seconds):
                        await event.wait()
            finally:
                self._event = None
        found, self._set = self._set, False
        return found
