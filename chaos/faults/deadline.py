"""Limits how long a fault waits while other faults block it. This is a module of its own because it imports trio:
programs that only read plans should not wait for that import.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from squall.chaos.faults.timeouts import BEHIND_OTHERS_S, WHOLE_WITHIN_S


class ExtendableDeadline:
    """Limits how long a fault waits: `within_s` from now. A check that finds other faults in the way moves the limit to
    `within_s` after that check, but never by more than `BEHIND_OTHERS_S` in total. in_the_way: returns whether other
    faults block this one.
    """

    def __init__(self, in_the_way: Callable[[], bool], within_s: float = WHOLE_WITHIN_S) -> None:
        self._in_the_way, self._within_s = in_the_way, within_s
        self._until = trio.current_time() + within_s
        self._at_most = self._until + BEHIND_OTHERS_S

    def is_over(self) -> bool:
        """Return whether it is time to give up. Call this after each attempt."""
        now = trio.current_time()
        if self._in_the_way():
            self._until = min(now + self._within_s, self._at_most)
        return now >= self._until
