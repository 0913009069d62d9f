"""Keeps the next deadline of each group, so that a tick costs only as much as the groups that are due."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


OF_PLACE = 100
"""Gives the bytes of one heap entry, not counting the group id."""
OVERTAKEN_MAX = 100_000
"""Limits the bytes of outdated heap entries: the heap is rebuilt without them once they take this many bytes more than
the other entries.
"""


class GroupDeadlines:
    """Holds groups in the order of their deadlines: monotonic times in ms.

    Moving a deadline to a later time, as every heartbeat does, costs nothing: the group keeps its heap entry, and its
    deadline is checked again when that entry is due.
    """

    __slots__ = ("_heap", "_known", "_needed", "_taken")

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        """Holds (time, group id) entries, the earliest first. An entry that is not also in `_known` is outdated: the
        group has got an earlier deadline, or has no deadline any more.
        """
        self._known: dict[str, int] = {}
        """Maps each group with a deadline to the time of its entry in `_heap`. The deadline itself may be later,
        because a deadline that moves to a later time does not change the entry.
        """
        self._taken, self._needed = 0, 0
        """Count the bytes of all heap entries, and of those that are not outdated (also in `_known`)."""

    def of(self, group_id: str) -> int | None:
        """Return the time at which to check the group: its deadline, or earlier. None if it has no deadline."""
        return self._known.get(group_id)

    def put(self, group_id: str, at_ms: int | None) -> None:
        """Set the group's deadline; None removes it."""
        known = self._known.get(group_id)
        if at_ms is None:
            if known is not None:
                self._forget(group_id)
                self._clear_away()
        elif known is None or at_ms < known:
            if known is None:
                self._needed += _size(group_id)
            self._known[group_id] = at_ms
            self._taken += _size(group_id)
            # The group's old heap entry stays and is skipped when it is due: a heap has no cheap removal.
            heappush(self._heap, (at_ms, group_id))
            self._clear_away()
        assert (group_id in self._known) == (at_ms is not None)
        assert at_ms is None or self._known[group_id] <= at_ms
        self._check()

    def _check(self) -> None:
        """Assert that the byte counts and the sizes of `_known` and `_heap` do not contradict each other."""
        assert 0 <= self._needed
        assert self._needed <= self._taken
        assert len(self._known) <= len(self._heap)
        assert (self._needed == 0) == (not self._known)
        assert (self._taken == 0) == (not self._heap)

    def _forget(self, group_id: str) -> None:
        del self._known[group_id]
        self._needed -= _size(group_id)

    def _pop(self) -> tuple[int, str]:
        at_ms, group_id = heappop(self._heap)
        self._taken -= _size(group_id)
        assert self._taken >= 0
        return at_ms, group_id

    def _clear_away(self) -> None:
        if self._taken > 2 * self._needed + OVERTAKEN_MAX:
            self._heap = [(at, one) for one, at in self._known.items()]
            heapify(self._heap)
            self._taken = self._needed
        assert self._taken <= 2 * self._needed + OVERTAKEN_MAX

    def next_ms(self, deadline_of: Callable[[str], int | None]) -> int | None:
        """Return the earliest deadline of all groups, or None. `deadline_of` returns the current deadline of a group.
        """
        while self._heap:
            at_ms, group_id = self._heap[0]
            if self._known.get(group_id) == at_ms:
                # Heartbeats have moved the deadline without touching the heap (see the class), so ask the group.
                real_ms = deadline_of(group_id)
                if real_ms is not None and real_ms <= at_ms:
                    return at_ms
                # The deadline has moved since. With its real time another group may be the earliest: look again.
                self._forget(group_id)
                self._pop()
                self.put(group_id, real_ms)
            else:
                self._pop()
        assert not self._known
        self._check()
        return None

    def due(self, now_ms: int) -> list[str]:
        """Return and remove the groups whose entry is due. The caller has to `put` each of them again."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, group_id = self._pop()
            if self._known.get(group_id) == at_ms:
                self._forget(group_id)
                found.append(group_id)
        assert len(set(found)) == len(found)
        self._check()
        return found


def _size(group_id: str) -> int:
    return OF_PLACE + len(group_id)
