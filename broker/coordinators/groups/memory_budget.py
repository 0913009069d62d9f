"""Limits the memory for what members of classic groups have sent: names, protocols, and assignments.

What is in the log costs disk before it costs memory. What a member sends as it joins costs nothing but the
coordinator's memory, for as long as its session lasts. Kafka's coordinators have no limit for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

OF_EACH, OF_PROTOCOL = 1000, 300
"""Bytes of a group or member, and of a protocol of one, beside their texts."""
OF_CHARACTER = 4
"""Of a name: what Python needs at most."""
AGAIN_AFTER_MS = 1000


class MemoryAccount(Protocol):
    """A group."""

    def held(self) -> int:
        """Bytes of its name, and of what its members have sent."""


class MemoryBudget:
    """The memory of all groups of a coordinator, and whether there is room for more.

    What is admitted is added up; only where the sum is over the limit is it counted what is really held, because
    members come again and go. Once there is no room, that is counted once a second.
    """

    __slots__ = ("_full_until_ms", "_groups", "_limit", "_sum")

    def __init__(self, limit: int, groups: Callable[[], Iterable[MemoryAccount]]) -> None:
        self._limit, self._groups = limit, groups
        self._sum, self._full_until_ms = 0, 0

    def admits(self, size: int, now_ms: int) -> bool:
        """Return whether there is room for that many more bytes. If so, they are counted from now on."""
        assert size >= 0
        if self._sum + size <= self._limit:
            self._sum += size
            return True
        if now_ms < self._full_until_ms:
            return False
        # What has gone was never subtracted: only a count says what is there.
        self._sum = sum(OF_EACH + group.held() for group in self._groups())
        if self._sum + size <= self._limit:
            self._sum += size
            return True
        self._full_until_ms = now_ms + AGAIN_AFTER_MS
        return False


def size_of(protocols: Iterable[tuple[str, bytes]], *names: str | None) -> int:
    """Bytes of the protocols that a member knows, and of the member, which goes by these names."""
    known = sum(OF_PROTOCOL + len(name) + len(metadata) for name, metadata in protocols)
    return OF_EACH + known + size_of_names(*names)


def size_of_names(*names: str | None) -> int:
    """Bytes of names; None is one that there is not."""
    return OF_CHARACTER * sum(len(name) for name in names if name is not None)
