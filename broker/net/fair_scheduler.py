"""Limits how long client connections may run, in total, before other tasks are scheduled.

In one pass of the event loop each connection with requests may serve a slice of them, and the node's other tasks
(connections between brokers, votes, heartbeats, timers) run once. With a thousand busy clients a pass would last
seconds. So clients have a time budget for each pass; beyond it they queue.
"""

from __future__ import annotations

from contextvars import ContextVar
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET_S = 0.02
"""Gives the seconds for which client connections together may serve requests in one pass of the event loop. Beyond that
they queue.
"""
_MOST_AT_ONCE = 64
"""Limits the queued connections that may run in one pass of the event loop."""


class Schedulable(Protocol):
    """Represents a connection that has requests to serve, or a task that builds a response."""

    round: int
    """Gives the value of `FairScheduler.rounds` when this object was last served; -1 before the first time."""
    closed: bool
    on_close: list[Callable[[], None]]


class FairScheduler:
    """Keeps the time budget of clients, and queues connections once the budget is spent: first come, first served.

    The budget is renewed after each complete pass of the event loop; `rounds` counts the renewals. While no connection
    queues, a pass is complete when some connection calls `must_queue` a second time since the last renewal. While
    connections queue, a task (`_call`) renews the budget, lets the first ones in the queue run, waits for a pass, and
    repeats.
    """

    def __init__(self, start_task: Callable[..., Any]) -> None:
        self.rounds = 0
        self._start_task = start_task
        self._spent_s = 0.0
        self._queue: dict[Schedulable, trio.Event] = {}
        self._is_calling = False
        self._at_once = 1
        """Gives the number of queued connections that may run in the next pass. If the last pass spent the whole
        budget, this is the number of connections that the last pass served. Otherwise the number doubles, up to
        `_MOST_AT_ONCE`.
        """
        self._served = 0

    def must_queue(self, queuer: Schedulable) -> bool:
        """Return whether `queuer`, which has requests to serve, must first wait in `queue`."""
        # While others queue, no connection may pass them.
        if self._is_calling:
            return True
        if queuer.round == self.rounds:
            self._begin_round()
        queuer.round = self.rounds
        return self._spent_s >= BUDGET_S

    def spend(self, seconds: float) -> None:
        """Charge `seconds`, for which the event loop worked on requests of clients, to the time budget."""
        self._spent_s += seconds

    async def queue(self, queuer: Schedulable) -> None:
        """Wait until `queuer` may run, or until it closes. If the wait is cancelled, `queuer` leaves the queue."""
        if queuer.closed:
            return
        if not self._is_calling:
            self._is_calling = True
            self._start_task(self._call)
        queuer.on_close.append(leave := lambda: self._leave(queuer))
        try:
            while not queuer.closed:
                called = self._queue[queuer] = trio.Event()
                await called.wait()
                # Otherwise those called with this one have used the budget up: it waits on, in its place.
                if self._spent_s < BUDGET_S:
                    break
        finally:
            self._queue.pop(queuer, None)
            if not queuer.closed:
                queuer.on_close.remove(leave)
        self._served += 1
        queuer.round = self.rounds

    def _leave(self, queuer: Schedulable) -> None:
        self._queue.pop(queuer).set()

    def _begin_round(self) -> None:
        self.rounds += 1
        self._spent_s = 0.0

    async def _call(self) -> None:
        """Let the next queued connections run, and wait for a pass of the event loop. Repeat until none is queued."""
        while self._queue:
            self._begin_round()
            self._served = 0
            for called in list(islice(self._queue.values(), self._at_once)):
                called.set()
            await trio.lowlevel.checkpoint()  # those that are called serve in the pass that begins here
            await trio.lowlevel.checkpoint()
            more = 2 * self._at_once if self._spent_s < BUDGET_S else self._served
            self._at_once = max(1, min(more, _MOST_AT_ONCE))
        self._begin_round()
        self._is_calling = False


class ResponseTask:
    """Charges the time of a task that builds one response in pieces to `BUDGET_S`, the time budget that all client
    connections share.
    """

    def __init__(self, turns: FairScheduler, mono: Callable[[], float]) -> None:
        self.round, self.closed = -1, False
        self.on_close: list[Callable[[], None]] = []
        self._turns, self._mono = turns, mono
        self._busy_since: float | None = None

    async def begin(self) -> None:
        """Wait in the queue if the time budget that clients share is spent. The task must call this before any work."""
        if self._turns.must_queue(self):
            await self._turns.queue(self)
        _ANSWER.set(self)

    async def give_way(self) -> None:
        """Charge the piece of work that has ended, let other tasks run, and wait in the queue if the time budget is
        spent.
        """
        self.end()
        await trio.lowlevel.checkpoint()
        if self._turns.must_queue(self):
            await self._turns.queue(self)
        self._busy_since = self._mono()

    def end(self) -> None:
        """Charge the piece of work that has ended to the time budget that clients share. The time since the last
        `give_way` may include a wait, so at most `BUDGET_S` is charged.
        """
        if self._busy_since is not None:
            self._turns.spend(min(self._mono() - self._busy_since, BUDGET_S))


_ANSWER: ContextVar[ResponseTask | None] = ContextVar("answer", default=None)
"""Holds the `ResponseTask` of the current task if the task answers a client's request, else None."""


async def give_way() -> None:
    """Let other tasks run. A task that builds a response in pieces calls this between two pieces. It must not hold a
    lock then, because it may have to queue for the time budget of clients.
    """
    answer = _ANSWER.get()
    if answer is None:
        await trio.lowlevel.checkpoint()
    else:
        await answer.give_way()
