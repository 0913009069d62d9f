"""What happens to a workload's clients from outside: one crashes, or stands still. For whoever injects faults.

A client is one of the workload's producers or readers; a producer's processes follow one another. A crash takes the
process that is handing records over, without a close: what it had not heard of stays without an outcome. Standing still
is the application's: nothing is handed over or polled, while its library's connections live on, as in a long garbage
collection of a program whose network thread is not held.
"""

from __future__ import annotations

from collections.abc import Callable

import trio


class Handle:
    """One client. `done` counts what it began: records handed over, or polls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.done = 0
        self.processes: list[int] = []
        """Process ids of the history, in the order in which they began."""
        self._scope: trio.CancelScope | None = None
        self._held: set[int] = set()
        self._down: set[int] = set()
        self._changed = trio.Event()

    # ------------------------------------------------------------------ from outside

    def hold(self, who: int) -> None:
        """It stands still, until everybody who holds it has let it go."""
        self._held.add(who)

    def let_go(self, who: int) -> None:
        """It may go on, if nobody else holds it."""
        self._held.discard(who)
        self._tell()

    def crash(self, who: int) -> int | None:
        """Its process is gone, and has no successor until `replace`. The process; None where there is none just now."""
        if self._scope is None:
            return None
        self._down.add(who)
        self._scope.cancel()
        return self.processes[-1]

    def replace(self, who: int) -> None:
        """It may have a successor."""
        self._down.discard(who)
        self._tell()

    # ------------------------------------------------------------------ of the client

    def began(self, process: int, scope: trio.CancelScope) -> None:
        """A process of this client begins, and ends where the scope is cancelled."""
        self.processes.append(process)
        self._scope = scope

    def over(self, scope: trio.CancelScope) -> None:
        """The process hands nothing over any more: it cannot crash."""
        if self._scope is scope:
            self._scope = None

    async def going(self, end: trio.Event) -> None:
        """Until nobody holds it, or all is over."""
        await self._until(lambda: not self._held, end)

    async def may_follow(self, end: trio.Event) -> None:
        """Until it may have a successor, or all is over."""
        await self._until(lambda: not self._down, end)

    async def _until(self, true: Callable[[], bool], end: trio.Event) -> None:
        while not true() and not end.is_set():
            async with trio.open_nursery() as nursery:
                changed = self._changed

                async def wait(event: trio.Event) -> None:
                    await event.wait()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(wait, changed)
                nursery.start_soon(wait, end)

    def _tell(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()


class Controls:
    """A workload's clients, by their numbers."""

    def __init__(self, producers: int, readers: int) -> None:
        self.producers = [Handle(f"producer {number}") for number in range(producers)]
        self.readers = [Handle(f"reader {number}") for number in range(readers)]
