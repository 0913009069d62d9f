"""What clients' connections together may take of the event loop before everything else has a turn.

In one pass of the loop each connection that has requests may serve a slice of them, and whatever else the node does
(connections between brokers, votes, heartbeats, timers) is done once. With a thousand busy clients a pass would last
seconds. So clients have a budget for each pass; beyond it they queue.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.net.connection import Connection

BUDGET_S = 0.02
"""Seconds that clients' connections may serve before they queue."""
_MOST_AT_ONCE = 64
"""Connections that are called in one pass of the loop."""


class Turns:
    """The budget, and the queue of those that came when it was spent: first come, first served.

    `rounds` counts how often the budget began anew. That happens when the loop is known to have come round: because a
    connection that has served in this round wants to serve again, or, while connections queue, by a task that calls
    the next ones and waits for a pass.
    """

    def __init__(self, start_task: Callable[..., Any]) -> None:
        self.rounds = 0
        self._start_task = start_task
        self._spent_s = 0.0
        self._queue: dict[Connection, trio.Event] = {}
        self._is_calling = False
        self._at_once = 1
        """How many to call next: as many as were served within the last budget, or more if some of it was left."""
        self._served = 0

    def must_queue(self, conn: Connection) -> bool:
        """Whether `conn`, which has something to serve, has to `queue` first."""
        if self._is_calling:
            return True
        if conn.round == self.rounds:
            self._begin_round()
        conn.round = self.rounds
        return self._spent_s >= BUDGET_S

    def spend(self, seconds: float) -> None:
        """Clients' requests took `seconds` of the event loop."""
        self._spent_s += seconds

    async def queue(self, conn: Connection) -> None:
        """Until it is the turn of `conn`, or it closes. Cancelled, it leaves the queue."""
        if conn.closed:
            return
        if not self._is_calling:
            self._is_calling = True
            self._start_task(self._call)
        conn.on_close.append(leave := lambda: self._leave(conn))
        try:
            while not conn.closed:
                called = self._queue[conn] = trio.Event()
                await called.wait()
                if self._spent_s < BUDGET_S:
                    break
        finally:
            self._queue.pop(conn, None)
            if not conn.closed:
                conn.on_close.remove(leave)
        self._served += 1
        conn.round = self.rounds

    def _leave(self, conn: Connection) -> None:
        self._queue.pop(conn).set()

    def _begin_round(self) -> None:
        self.rounds += 1
        self._spent_s = 0.0

    async def _call(self) -> None:
        """Call the next ones, let the loop come round, and so on until nobody queues."""
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
