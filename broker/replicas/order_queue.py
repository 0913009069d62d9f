"""Many orders of the control plane at once: obeyed one after the other, with turns for others in between.

Making a log and giving one up takes a millisecond or two of disk, and a topic may have thousands of partitions. So does
the first append to a log in each leader epoch: whoever appends to many logs at once counts what that costs.
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
"""Logs that are made or given up before other tasks have their turn: some 30 ms of them."""
LONGEST_TURN_S = 0.03
"""And no more once they have taken so long: a disk that others use, too, takes 10 ms and more for each."""

FEW_PARTITIONS = 16
"""A request or response of at most so many is served at once: nothing of it is counted."""
SPENT_IN_A_TURN = 64
"""Logs that are appended to before other tasks have their turn: some 10 ms of them."""
FIRST_COSTS = 32
"""As many appends as the first one of a leader epoch costs: it waits for the disk, 1 to 5 ms, because the log's epochs
must be durable before it.
"""


class OrderQueue:
    """Orders that are still to be obeyed."""

    __slots__ = ("_mono", "_obey", "_owed", "_settle", "start_soon")

    def __init__(self, obey: Callable[[Order], bool], settle: Callable[[], None], mono: Callable[[], float]) -> None:
        """`obey` says whether a log was made or given up; `settle` is called at the end of each turn; `mono` is the
        clock.
        """
        self._obey, self._settle, self._mono = obey, settle, mono
        self._owed: deque[Order] = deque()
        self.start_soon: Callable[..., None] | None = None
        """Where tasks run."""

    def take(self, orders: Sequence[Order]) -> None:
        """Obey them, behind those that are still owed: as many as fit into a turn now, the others in later ones."""
        waits = bool(self._owed)
        self._owed.extend(orders)
        if waits:
            return
        self._obey_for_a_turn()
        if self._owed:
            assert self.start_soon is not None
            self.start_soon(self._go_on)

    async def _go_on(self) -> None:
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
