"""Keeps the next deadline of each group, so that a tick costs what is due in it and not what all groups come to."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


OF_PLACE = 100
"""Bytes of a place in the heap, beside the group's name."""
OVERTAKEN_MAX = 100_000
"""Places that nobody needs are cleared away once they take so many bytes more than all others."""


class GroupDeadlines:
    """Groups by their deadlines: monotonic moments in ms.

    A deadline that moves to a later moment, as with every heartbeat, costs nothing: the group keeps its place, and is
    asked again when that comes.
    """

    __slots__ = ("_heap", "_known", "_needed", "_taken")

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        """What is not in `_known` as well counts no more: an earlier moment came, or the group has nothing to do."""
        self._known: dict[str, int] = {}
        """Of each group that waits for something: a moment that is not after its deadline."""
        self._taken, self._needed = 0, 0
        """Bytes of all places in the heap, and of those that `_known` has."""

    def of(self, group_id: str) -> int | None:
        """A moment that is not after the group's deadline; None: it has none."""
        return self._known.get(group_id)

    def put(self, group_id: str, at_ms: int | None) -> None:
        """The group's deadline is that; None: it has none."""
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
            # A group's earlier place stays, and is passed over when it comes up: a heap has no cheap removal.
            heappush(self._heap, (at_ms, group_id))
            self._clear_away()
        self._check()

    def _check(self) -> None:
        """Assert that each group in `_known` has a place in the heap."""
        assert 0 <= self._needed
        assert self._needed <= self._taken
        assert len(self._known) <= len(self._heap)

    def _forget(self, group_id: str) -> None:
        del self._known[group_id]
        self._needed -= _size(group_id)

    def _pop(self) -> tuple[int, str]:
        at_ms, group_id = heappop(self._heap)
        self._taken -= _size(group_id)
        return at_ms, group_id

    def _clear_away(self) -> None:
        if self._taken > 2 * self._needed + OVERTAKEN_MAX:
            self._heap = [(at, one) for one, at in self._known.items()]
            heapify(self._heap)
            self._taken = self._needed
        assert self._taken <= 2 * self._needed + OVERTAKEN_MAX

    def next_ms(self, deadline_of: Callable[[str], int | None]) -> int | None:
        """The first deadline of all. `deadline_of` tells that of a group as it is now."""
        while self._heap:
            at_ms, group_id = self._heap[0]
            if self._known.get(group_id) == at_ms:
                real_ms = deadline_of(group_id)
                if real_ms is not None and real_ms <= at_ms:
                    return at_ms
                self._forget(group_id)
                self._pop()
                self.put(group_id, real_ms)
            else:
                self._pop()
        self._check()
        return None

    def due(self, now_ms: int) -> list[str]:
        """The groups whose moment has come. Each is to be put in again."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, group_id = self._pop()
            if self._known.get(group_id) == at_ms:
                self._forget(group_id)
                found.append(group_id)
        self._check()
        return found


def _size(group_id: str) -> int:
    return OF_PLACE + len(group_id)
