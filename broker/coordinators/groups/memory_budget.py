"""Limits the memory for data that members of classic groups send: names, protocols and assignments.

A joining member's data is not in the log: it takes only the coordinator's memory, until the member's session ends. So
clients could fill the memory without filling a disk first. Kafka's coordinators have no limit for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

OF_EACH, OF_PROTOCOL = 1000, 300
"""Give estimates in bytes. OF_EACH is the memory of a group, a member or an unused member id; OF_PROTOCOL is the memory
of one protocol of a member. Names and metadata are counted separately.
"""
OF_CHARACTER = 4
"""Gives the largest number of bytes that Python needs for a character."""
AGAIN_AFTER_MS = 1000


class MemoryBudget:
    """Limits the memory of all groups of a coordinator.

    Admitted sizes are added up, and members that leave are not subtracted. So if the sum would exceed the limit, the
    memory of the present groups is counted, and replaces the sum. If the new size does not fit even then, it is
    refused, and the next count is made 1 s later at the earliest.
    """

    __slots__ = ("_full_until_ms", "_groups_bytes", "_limit", "_sum")

    def __init__(self, limit: int, groups_bytes: Callable[[], Iterable[int]]) -> None:
        assert limit >= 0
        self._limit, self._groups_bytes = limit, groups_bytes
        self._sum, self._full_until_ms = 0, 0

    def admits(self, size: int, now_ms: int) -> bool:
        """Return whether `size` more bytes fit into the budget. If so, they are counted from now on."""
        assert size >= 0
        if self._sum + size <= self._limit:
            self._sum += size
            return True
        # Counting looks at every member. Without this pause each refused request would cost that again.
        if now_ms < self._full_until_ms:
            return False
        # Removed members were never subtracted from the sum, so count the memory again.
        self._sum = sum(OF_EACH + each for each in self._groups_bytes())
        if self._sum + size <= self._limit:
            self._sum += size
            return True
        self._full_until_ms = now_ms + AGAIN_AFTER_MS
        return False


def size_of(protocols: Iterable[tuple[str, bytes]], *names: str | None) -> int:
    """Return the estimated memory, in bytes, of a member with these protocols (name, metadata) and names, such as its
    ids.
    """
    known = sum(OF_PROTOCOL + len(name) + len(metadata) for name, metadata in protocols)
    return OF_EACH + known + size_of_names(*names)


def size_of_names(*names: str | None) -> int:
    """Return the largest number of bytes that names take in memory. A name that is None takes none."""
    return OF_CHARACTER * sum(len(name) for name in names if name is not None)
