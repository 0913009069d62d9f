"""Queues orders of the control plane and carries them out one after the other, in turns (pieces of work between which
other tasks run).

To create or delete a log takes the disk a millisecond or two, and a topic may have thousands of partitions. The first
append to a log in each leader epoch takes as long: code that appends to many logs at once counts this cost.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio

from squall.broker.work import DONE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from squall.broker.control.port import Order

MADE_IN_A_TURN = 16
"""Limits how many logs are created or deleted before other tasks run: some 30 ms."""
LONGEST_TURN_S = 0.03
"""Limits, in seconds, how long orders are carried out before other tasks run: on a busy disk each log takes 10 ms and
more.
"""

FEW_PARTITIONS = 16
"""Gives the number of partitions up to which a request or response is handled without letting other tasks run in
between.
"""
SPENT_IN_A_TURN = 64
"""Limits the cost of the work before other tasks run, some 10 ms. An append costs 1, but the first append of a leader
epoch costs FIRST_COSTS.
"""
FIRST_COSTS = 32
"""Gives the cost of the first append of a leader epoch, in units of a later append. The first append waits 1 to 5 ms
for the disk, because the leader epoch must be durable before it.
"""


class OrderQueue:
    """Holds the control plane's orders (create, change or drop a replica) that are not carried out yet."""

    __slots__ = ("_mono", "_obey", "_owed", "_settle", "start_soon")

    def __init__(self, obey: Callable[[Order], bool], settle: Callable[[], None], mono: Callable[[], float]) -> None:
        """Set up the queue. `obey` carries out an order and returns whether a log was created or deleted. `settle`
        answers the fetches that the orders have woken; it is called each time before other tasks run. `mono` returns
        the monotonic time in seconds.
        """
        self._obey, self._settle, self._mono = obey, settle, mono
        self._owed: deque[Order] = deque()
        self.start_soon: Callable[..., None] | None = None
        """Starts a trio task; None until the node has set it."""

    def take(self, orders: Sequence[Order]) -> None:
        """Add the control plane's orders to the queue, and carry them out in sequence. If MADE_IN_A_TURN or
        LONGEST_TURN_S is reached, or if earlier orders still wait, a task carries out the rest after other tasks have
        run.
        """
        waits = bool(self._owed)
        self._owed.extend(orders)
        if waits:
            return  # the task that carries out the earlier ones takes these as well
        self._obey_for_a_turn()
        if self._owed:
            assert self.start_soon is not None
            self.start_soon(self._run_turns)

    async def _run_turns(self) -> None:
        while self._owed:
            await trio.lowlevel.checkpoint()
            self._obey_for_a_turn()

    def _obey_for_a_turn(self) -> None:
        made, until_s = 0, self._mono() + LONGEST_TURN_S
        while self._owed and made < MADE_IN_A_TURN:
            if self._obey(self._owed.popleft()):
                made += 1
                if self._mono() > until_s:
                    break
        DONE.entries += made
        self._settle()
